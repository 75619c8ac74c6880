"""A drafter wrote to lookahead slots that were not reserved, and its writes went outside its block
table (vllm#57605). A write to the null block, to a cached block or to another request's block
changes what other requests read.

A block may be written and cached in one step, and other requests may hit it in the same step. A
write that does not change the content is not visible here. A step with a failed load writes
nothing. The copy of a block may belong to the cache alone after the step. An attention block that
is cached up to a slot may be written behind that slot. A free block that a step takes is cached no
more, even if it gets the same key again.
"""

from collections.abc import Iterator

from kvproof.invariants.cached_block_holds_its_key import promised
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def _written(before: Engine, after: Engine) -> list[int]:
    pairs = zip(before.memory, after.memory, strict=True)
    return [block for block, (old, new) in enumerate(pairs) if old is not new and old != new]


def _kept(cluster: Cluster, before: Engine, after: Engine, block: int) -> bool:
    """Whether a cached block still holds what its key names, because only slots behind it
    changed."""
    key = before.blocks[block].key
    contents = before.memory[block], after.memory[block]
    if key is None or None in contents:
        return False
    count = len(promised(cluster.engine(after.name), key))
    old, new = (content.slots[:count] if content else () for content in contents)
    return old == new


def _taken(step: Step) -> set[int]:
    """The blocks that this step takes from the free queue."""
    chosen = (step.event.chose or ()) if isinstance(step.event, Schedule) else ()
    lists = (getattr(choice, "taken", ()) for choice in chosen)
    return {block for each in lists for blocks in each for block in blocks}


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each block whose content changes is held by exactly one request and was not cached before."""
    if isinstance(step.event, Complete) and step.event.failed:
        return
    scheduled = isinstance(step.event, Schedule)
    taken = _taken(step)
    copied = {(copy.engine, copy.target) for copy in step.effects.copies}
    for before, after in step.touched:
        if before.memory is after.memory:
            continue
        # A step writes to blocks that it has allocated. Another event may end the request that it
        # writes for.
        holding = after if scheduled else before
        for block in _written(before, after):
            old, new = before.blocks[block].key, after.blocks[block].key
            owners = [r.id for r in holding.requests if any(block in t for t in r.tables)]
            how: Reason | None = None
            if block == NULL:
                how = reason("is_null", "it is the null block")
            elif (
                old is not None
                and old == new
                and not (block in taken and before.blocks[block].refs == 0)
                and not _kept(cluster, before, after, block)
            ):
                how = reason(
                    "stays_cached",
                    "it is cached as prefix {key:quoted} of group {of} before and after the write",
                    key=old[1],
                    of=old[0],
                )
            elif not owners and (after.name, block) not in copied:
                how = reason("nobody_holds", "no request holds it")
            elif len(owners) > 1 and new in (old, None):
                how = reason("several_hold", "{owners:names} hold it", owners=owners)
            if how is not None:
                written = reason("is_written", "block {block} of {engine} is written")
                yield because(written, how, engine=after.name, block=block)


INVARIANT = Invariant(
    id="writer_is_alone",
    name="a step writes only to uncached blocks that its request owns alone",
    origin="vllm#57605",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.WRITES,),
    subjects=(Subject.HOLDERS, Subject.IS_FREE, Subject.REAL_BLOCKS, Subject.BLOCKS),
    killed_by="lookahead_not_reserved",
)
