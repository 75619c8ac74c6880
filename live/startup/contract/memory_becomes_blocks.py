"""Memory that no block uses is KV that is computed again. The worker with the least memory sets the
number of blocks; less than one of its blocks may be left over, and one more that vLLM is free to
keep back."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The blocks fill the memory of the poorest worker."""
    if start.plan.override or start.blocks is None or start.num_blocks >= start.blocks - 1:
        return
    yield because(
        reason("room", "each worker has memory for {blocks} blocks", blocks=start.blocks),
        reason("made", "the engine has {blocks}", blocks=start.num_blocks),
    )


RULE = EngineRule(
    id="memory_becomes_blocks",
    name="an engine has as many blocks as its poorest worker has memory for",
    origin="get_kv_cache_configs",
    severity=Severity.LOST_PERFORMANCE,
    judge=judge,
)
