"""Which of the free blocks is taken next."""

from kvproof.invariants.blocks import uncached_blocks_are_reused_at_once
from kvproof.invariants.check import broken
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.state import Block, Engine, State
from kvproof.model.step import Effects, Step

FULL = (Group("full", 2),)
CLUSTER = Cluster(
    "c", (EngineConfig("E", FULL, 8, "prefill"), EngineConfig("D", FULL, 8, "decode"))
)
BLOCKS = (Block(0),) * 8


def complaints(*chose: Compute | Preempt, engine: str = "E") -> int:
    """Block 4 is freed behind block 7, which was free before this step."""
    before, after = (Engine("E", BLOCKS, free) for free in ((7,), (7, 4)))
    event = Schedule(engine, chose=chose)
    step = Step(State((before,), ()), event, Effects(), State((after,), ()))
    return len([*broken(CLUSTER, step, [uncached_blocks_are_reused_at_once])])


def test_a_block_that_is_freed_behind_an_older_one_is_named() -> None:
    assert complaints() == 1


def test_a_block_that_was_taken_and_freed_again_is_not_older() -> None:
    """vLLM may schedule a request and preempt it in the same step."""
    assert complaints(Compute("r1", 4, taken=((7,),)), Preempt("r1", "r2")) == 0
    assert complaints(Compute("r1", 4, taken=((6,),)), Preempt("r1", "r2")) == 1
    assert complaints(Compute("r1", 4, taken=((7,),)), engine="D") == 1
