"""If a block is allocated while another request holds it, or is freed once too often, two requests
write it (vllm#44409, vllm#46240).

The check follows the choices of a step in order, with the blocks that each choice took and freed.
The spec permits any free block, and permits a freed block to wait for steps in flight. The blocks
of copies are not checked here: they are held until the copies are made at the end of the step.
"""

from collections import Counter
from collections.abc import Iterator

from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Choice, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step


def blocks_of(choice: Choice, what: str) -> list[int]:
    """The blocks of all groups that a choice hit, took or freed, without the null block."""
    lists = getattr(choice, what, ())
    return [block for blocks in lists for block in blocks if block != NULL]


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each block was free when it was taken, and each freed block had a reference."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before, after = engines
    held = Counter({number: block.refs for number, block in enumerate(before.blocks)})
    for choice in step.event.chose or ():
        kind = type(choice).__name__
        for block in blocks_of(choice, "hit"):
            held[block] += 1
        for block in blocks_of(choice, "freed"):
            if held[block] < 1:
                how = reason("freed", "{choice} frees it, and no request holds it", choice=kind)
                yield _because(after.name, choice, block, how)
            held[block] -= 1
        for block in blocks_of(choice, "taken"):
            if held[block] > 0:
                how = reason("taken", "{choice} takes it, and it is in use", choice=kind)
                yield _because(after.name, choice, block, how)
            held[block] += 1
    held += _deferred(after)
    held.subtract(_deferred(before))
    copied = {b for c in step.effects.copies if c.engine == after.name for b in c[1:]}
    for number, now in enumerate(after.blocks):
        if number not in copied and number != NULL and now.refs != held[number]:
            yield because(
                reason(
                    "references_held",
                    "after the choices of the step, block {block} of {engine} has "
                    "{references} references",
                    references=held[number],
                ),
                reason(
                    "reference_count", "its reference count is {references}", references=now.refs
                ),
                engine=after.name,
                block=number,
            )


def _deferred(engine: Engine) -> Counter[int]:
    """The blocks that wait for steps to end, each counted as often as it waits."""
    return Counter(block for _, blocks in engine.deferred for block in blocks)


def _because(engine: str, choice: Choice, block: int, how: Reason) -> Because:
    blocks = reason("block", "block {block} of {engine} ({request})")
    return because(blocks, how, engine=engine, request=choice.request, block=block)


GUARD = Guard(
    id="taken_blocks_were_free",
    name="a block is taken only while it is free, and each holder frees it once",
    part="block pool",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.CHOSEN_BLOCKS,),
)
