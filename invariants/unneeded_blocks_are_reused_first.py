"""A free block that is cached can still be hit. So a step takes the free blocks that no hit can use
before those, and of those the ones first that were freed first. Of the blocks that one event frees,
a later block of a prefix goes first: without an earlier one it cannot be hit. Else every answer is
right, and prefixes are computed again (vllm#42656).

The free queue is the order in which blocks are taken. It is not judged where blocks are evicted
from outside: such a block may lose its key in the middle of the queue. The order in one event is
that of full attention, since a window needs no earlier blocks, and of engines whose hits end at the
end of a block: else the end of a prompt may be in two blocks, and one of them is enough. An earlier
block is one that its prefix fills.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Admit, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def _taken_early(before: Engine, after: Engine) -> Iterator[Because]:
    """A cached block is taken, although one that nobody can hit is free all the time. It stands
    behind the other: one before it was taken too, and is free again where its tokens left a window
    within the step."""
    held = {b for request in after.requests for table in request.tables for b in table}
    for place, block in enumerate(before.free):
        keys = before.blocks[block].keys
        if not keys or block not in held or after.blocks[block].keys:
            continue
        left = [
            b
            for b in before.free[place + 1 :]
            if b in after.free and not before.blocks[b].keys and not after.blocks[b].keys
        ]
        if left:
            yield because(
                reason(
                    "evicts",
                    "block {block} of {engine} was cached under {tokens} tokens, and is taken for "
                    "other tokens",
                    tokens=max(len(key[1]) for key in keys),
                ),
                reason("free", "{blocks} free blocks are not cached", blocks=len(left)),
                engine=before.name,
                block=block,
            )


def _hits(step: Step) -> set[int]:
    """The blocks that were hit or copied, or that a copy fills, in a step: these are free for less
    long than before, also where they have the same key again."""
    choices = step.event.chose or () if isinstance(step.event, Schedule) else ()
    admitted = (choice for choice in choices if isinstance(choice, Admit))
    hit = {block for choice in admitted for blocks in choice.hit for block in blocks}
    return hit | {block for copy in step.effects.copies for block in (copy.source, copy.target)}


def _queued_early(before: Engine, after: Engine, hit: set[int]) -> Iterator[Because]:
    """A cached block that is freed now will be taken before one that was free before, and was not
    `hit` meanwhile."""
    was_free = set(before.free)
    kept = {b for b in was_free - hit if before.blocks[b].keys == after.blocks[b].keys}
    older = [b for b in after.free if b in kept and after.blocks[b].keys]
    if not older:
        return
    last = after.free.index(older[-1])
    for block in after.free[:last]:
        if block not in was_free and after.blocks[block].keys:
            yield because(
                reason("freed", "block {block} of {engine} is cached, and is freed now"),
                reason(
                    "before",
                    "it will be taken before block {other}, which is cached and was free before",
                    other=older[-1],
                ),
                engine=after.name,
                block=block,
            )


def _prefix_goes_first(cfg: EngineConfig, before: Engine, after: Engine) -> Iterator[Because]:
    """Of two blocks of a prefix that are freed now, the earlier one is taken first."""
    if cfg.partial_block_hits:
        return
    was_free = set(before.free)
    full = {index for index, group in enumerate(cfg.groups) if group.kind == "full"}
    freed = [
        (block, key)
        for block in after.free
        if block not in was_free
        for key in after.blocks[block].keys
        if key[0] in full
    ]
    for place, (block, key) in enumerate(freed):
        if (len(key[1]) - cfg.hash_lookahead_tokens) % cfg.groups[key[0]].block_size:
            continue
        for other, longer in freed[place + 1 :]:
            if (
                longer[0] == key[0]
                and longer[1].startswith(key[1])
                and longer != key
                and after.blocks_for(key) == (block,)
                and other != block
            ):
                yield because(
                    reason(
                        "first",
                        "block {block} of {engine} has the first {tokens} tokens of a prefix, and "
                        "will be taken first",
                        tokens=len(key[1]),
                    ),
                    reason(
                        "useless",
                        "block {other} was freed with it, and cannot be hit without it",
                        other=other,
                    ),
                    engine=after.name,
                    block=block,
                )


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Free blocks are taken in an order that keeps what can be hit."""
    if cluster.evictions:
        return
    for before, after in step.touched:
        if cluster.engine(after.name).prefix_caching:
            yield from _taken_early(before, after)
            yield from _queued_early(before, after, _hits(step))
            yield from _prefix_goes_first(cluster.engine(after.name), before, after)


INVARIANT = Invariant(
    id="unneeded_blocks_are_reused_first",
    name="free blocks that can still be hit are taken last, the least recently used first",
    origin="BlockPool.free_blocks; vllm#42656",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.REUSE_ORDER,),
    subjects=(Subject.FREE,),
    killed_by="uncached_blocks_go_last",
)
