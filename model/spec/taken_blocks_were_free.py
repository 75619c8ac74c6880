"""A block that is given to a request while another one holds it, or that is given back once too
often, is written by two (vllm#44409, vllm#46240).

The choices of a step are followed in order, with the blocks that each says it took and freed. Which
of the free blocks is taken is left open, and whether a block that is freed waits for the steps in
flight to end. Blocks of copies are held until these are made, at the end of the step, and are left
out here.
"""

from collections import Counter
from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Choice, Schedule, describe
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step


def blocks_of(choice: Choice, what: str) -> list[int]:
    """The blocks that a choice hit, took or freed, of all groups; the null block is nobody's."""
    lists = getattr(choice, what, ())
    return [block for blocks in lists for block in blocks if block != NULL]


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each block taken was free when it was taken, and each block freed had a reference to lose."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    before, after = engines
    held = Counter({number: block.refs for number, block in enumerate(before.blocks)})
    for choice in step.event.chose or ():
        said = describe(choice)
        for block in blocks_of(choice, "hit"):
            held[block] += 1
        for block in blocks_of(choice, "freed"):
            if held[block] < 1:
                yield _because(after.name, choice, block, f"{said} frees it, and nobody holds it")
            held[block] -= 1
        for block in blocks_of(choice, "taken"):
            if held[block] > 0:
                yield _because(after.name, choice, block, f"{said} takes it, and it is in use")
            held[block] += 1
    held += _deferred(after)
    held.subtract(_deferred(before))
    copied = {b for c in step.effects.copies if c.engine == after.name for b in c[1:]}
    for number, now in enumerate(after.blocks):
        if number not in copied and number != NULL and now.refs != held[number]:
            yield because(
                f"by what the step took and freed, block {number} of {after.name} has "
                f"{held[number]} references",
                f"it has {now.refs}",
                engine=after.name,
                block=number,
            )


def _deferred(engine: Engine) -> Counter[int]:
    """The blocks that wait for steps to end, each as often as it does."""
    return Counter(block for _, blocks in engine.deferred for block in blocks)


def _because(engine: str, choice: Choice, block: int, how: str) -> Because:
    said = f"block {block} of {engine}"
    return because(said, how, engine=engine, request=choice.request, block=block)


GUARD = Guard(
    id="taken_blocks_were_free",
    name="a block is taken only while it is free, and freed once by each request that holds it",
    part="block pool",
    severity=Severity.WRONG_TOKENS,
    check=check,
)
