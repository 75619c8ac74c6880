"""What a router believes. It replays the events of an engine and sends requests where their prefix
is cached. #55092: two blocks hold the same prefix, one of them is given away, and `BlockRemoved` is
sent: the router takes for lost what the next request would hit."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Whoever replayed all events knows exactly the keys that are cached."""
    if engine.reports is None:
        return
    believed, cached = set(engine.ghost.mirror), {key for key, blocks in engine.cached if blocks}
    for group, prefix in sorted(cached - believed):
        yield because(
            f"prefix {prefix!r} of group {group} is cached on {engine.name}",
            "the events, replayed, say that it is not",
            engine=engine.name,
            group=group,
            prefix=prefix,
        )
    for group, prefix in sorted(believed - cached):
        yield because(
            f"the events of {engine.name}, replayed, say that prefix {prefix!r} of group {group} "
            "is cached",
            "it is not",
            engine=engine.name,
            group=group,
            prefix=prefix,
        )


INVARIANT = Invariant(
    id="events_replay_to_the_cache",
    name="replaying the KV events gives exactly the cached keys",
    origin="vllm#55092",
    severity=Severity.LOST_PERFORMANCE,
    check=EachEngine(check),
    killed_by="removal_of_one_copy_reported",
)
