"""Checks that events and findings name things that the cluster has."""

from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import asdict

from kvproof.model.config import Cluster
from kvproof.model.config.sides import transfer_names
from kvproof.model.errors import UsageError, unknown
from kvproof.model.events import Evict

REQUESTS = ("request", "needy", "failed", "accepted")
"""Fields of events, choices and findings with the names of requests or transfers."""


def check_names(cluster: Cluster, named: Struct) -> None:
    """Raises UsageError where an event, or what a finding is about, names an engine, a request or
    a block that the cluster does not have."""
    engines = [engine.name for engine in cluster.engines]
    requests = transfer_names(cluster)
    for field, name in _names(named):
        known: Collection[str] = engines if field == "engine" else requests
        if name not in known:
            raise unknown("engine" if field == "engine" else "request", name, known)
    if isinstance(named, Evict) and named.block >= cluster.engine(named.engine).num_blocks:
        raise UsageError(
            f"Engine {named.engine} has no block {named.block}. Use a block of its pool."
        )


def _names(named: Struct) -> Iterator[tuple[str, str]]:
    """The fields that name something, and the names. An optional field that is empty names
    nothing."""
    fields = asdict(named)
    optional = [*fields][len(fields) - len(named.__struct_defaults__) :]
    for field, value in fields.items():
        if field == "chose":
            for choice in value:
                yield from _names(choice)
        elif field == "accepted":
            yield from ((field, name) for name in value)
        elif field in ("engine", *REQUESTS) and (value or field not in optional):
            yield field, value
