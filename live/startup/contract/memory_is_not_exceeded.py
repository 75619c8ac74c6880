"""A worker allocates what its config has. If this is more than its memory, it dies (or another one
does, which had the memory)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The buffers of a worker are not larger than its memory."""
    for index, worker in enumerate(start.workers):
        allocated = sum(worker.buffers)
        if allocated > worker.memory_bytes and not start.plan.override:
            yield because(
                reason(
                    "has",
                    "worker {worker} has {memory} bytes for KV caches",
                    worker=index,
                    memory=worker.memory_bytes,
                ),
                reason("allocates", "it has to allocate {bytes}", bytes=allocated),
            )


RULE = EngineRule(
    id="memory_is_not_exceeded",
    name="no worker has to allocate more than the memory that it has",
    origin="get_kv_cache_config_from_groups",
    severity=Severity.CRASH,
    judge=judge,
)
