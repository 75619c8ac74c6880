"""A router replays the KV events of an engine and sends each request to an engine that caches its
prefix. Two blocks held the same prefix, one of them was evicted, and vLLM sent `BlockRemoved`
(vllm#55092). The router then took the prefix for evicted, although the next request would hit it.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A listener that replays all events knows exactly the cached keys."""
    if engine.reports is None:
        return
    believed, cached = set(engine.ghost.mirror), {key for key, blocks in engine.cached if blocks}
    for group, prefix in sorted(cached - believed):
        yield because(
            reason("is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"),
            reason("reported_not_cached", "the replayed events report it as not cached"),
            engine=engine.name,
            group=group,
            prefix=prefix,
        )
    for group, prefix in sorted(believed - cached):
        yield because(
            reason(
                "reported_cached",
                "the replayed events of {engine} report prefix {prefix:quoted} of "
                "group {group} as cached",
            ),
            reason("not_cached", "it is not cached"),
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
    needs=(Need.EVENTS,),
    subjects=(Subject.MIRROR, Subject.EVENTS),
    killed_by="removal_of_one_copy_reported",
)
