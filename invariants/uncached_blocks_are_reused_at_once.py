"""A block that no hit can use is taken again before the blocks that have been free for longer: its
memory is still in the caches of the device. This is so where prefix caching is off, and for blocks
without a key. It was lost when cached blocks got an order of their own, and mended (vllm#51482).

The free queue is the order in which blocks are taken. A reset takes the keys of blocks that were
freed as cached ones; it is not judged.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import ResetPrefixCache, ResetRunning, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def _taken(step: Step, engine: str) -> set[int]:
    """The blocks of an engine that this step took from the free queue. One of them that is free
    again was freed in this step too."""
    event = step.event
    chosen = (event.chose or ()) if isinstance(event, Schedule) and event.engine == engine else ()
    lists = (blocks for choice in chosen for blocks in getattr(choice, "taken", ()))
    return {block for blocks in lists for block in blocks}


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """A block that is freed without a key stands before those that were free before."""
    if isinstance(step.event, ResetPrefixCache | ResetRunning):
        return
    for before, after in step.touched:
        was_free, older = set(before.free) - _taken(step, after.name), 0
        for block in after.free:
            if block in was_free:
                older += 1
            elif older and not after.blocks[block].keys:
                yield because(
                    reason("freed", "block {block} of {engine} is freed now, and is not cached"),
                    reason("behind", "{blocks} blocks free for longer go first", blocks=older),
                    engine=after.name,
                    block=block,
                )
                break


INVARIANT = Invariant(
    id="uncached_blocks_are_reused_at_once",
    name="a block that is freed and that no hit can use is taken before blocks free for longer",
    origin="BlockPool.free_blocks; vllm#51482",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.REUSE_ORDER,),
    subjects=(Subject.FREE,),
    killed_by="uncached_blocks_go_last",
)
