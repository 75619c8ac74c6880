"""What a step writes is its own: into the null block, into a block that is cached or into one that
somebody else has as well, and another request reads it. A drafter whose slots ahead were not
reserved writes outside its table (#57605).

A block may be written and cached in one step, and be hit by others in it: they read what it is
cached as. To write what a block holds already changes nothing, and is not seen. Where a load turns
out to have brought nothing, nobody writes. A copy that only the cache has is held by nobody after
the step. Attention that is cached up to a slot may be written behind it.
"""

from collections.abc import Iterator

from kvproof.invariants.cached_block_holds_its_key import promised
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Schedule
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine
from kvproof.model.step import Step


def _written(before: Engine, after: Engine) -> list[int]:
    pairs = zip(before.memory, after.memory, strict=True)
    return [block for block, (old, new) in enumerate(pairs) if old is not new and old != new]


def _kept(cluster: Cluster, before: Engine, after: Engine, block: int) -> bool:
    """Whether a block that is cached still holds what its key says: only slots behind are new."""
    key = before.blocks[block].key
    contents = before.memory[block], after.memory[block]
    if key is None or None in contents:
        return False
    count = len(promised(cluster.engine(after.name), key))
    old, new = (content.slots[:count] if content else () for content in contents)
    return old == new


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each block whose content changes is held by one request, and is not cached already."""
    if isinstance(step.event, Complete) and step.event.failed:
        return
    scheduled = isinstance(step.event, Schedule)
    copied = {(copy.engine, copy.target) for copy in step.effects.copies}
    for before, after in zip(step.before.engines, step.after.engines, strict=True):
        if before is after or before.memory is after.memory:
            continue
        # A step writes into what it has taken; what else writes may end its request.
        holding = after if scheduled else before
        for block in _written(before, after):
            old, new = before.blocks[block].key, after.blocks[block].key
            owners = [r.id for r in holding.requests if any(block in t for t in r.tables)]
            how = ""
            if block == NULL:
                how = "it is the null block, which is nobody's"
            elif old is not None and old == new and not _kept(cluster, before, after, block):
                how = f"it is cached as prefix {old[1]!r} of group {old[0]} all the while"
            elif not owners and (after.name, block) not in copied:
                how = "no request holds it"
            elif len(owners) > 1 and new in (old, None):
                how = f"{', '.join(owners)} hold it"
            if how:
                said = f"block {block} of {after.name} is written"
                yield because(said, how, engine=after.name, block=block)


INVARIANT = Invariant(
    id="writer_is_alone",
    name="a step writes only into blocks that one request holds and that are not cached yet",
    origin="vllm#57605",
    severity=Severity.WRONG_TOKENS,
    check=check,
    killed_by="lookahead_not_reserved",
)
