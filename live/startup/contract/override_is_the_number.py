"""A user who sets `num_gpu_blocks_override` has this number of blocks, with any memory
(vllm#41069)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The number of blocks is the one that was set."""
    if start.plan.override and start.blocks not in (None, start.num_blocks):
        yield because(
            reason("set", "num_gpu_blocks_override is {blocks}", blocks=start.blocks),
            reason("made", "the engine has {blocks} blocks", blocks=start.num_blocks),
        )


RULE = EngineRule(
    id="override_is_the_number",
    name="an engine with num_gpu_blocks_override has this number of blocks",
    origin="may_override_num_blocks; vllm#41069",
    severity=Severity.CRASH,
    judge=judge,
)
