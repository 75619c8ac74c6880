"""What must be true of the blocks of an engine: reference counts, the free queue, the keys in the
hash map."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kvproof.invariants.changes import blocks_of, choices, taken
from kvproof.invariants.check import check
from kvproof.invariants.loop import idle, unpaused
from kvproof.invariants.parties import logical
from kvproof.model.because import Judged, because, choice, holds, holds_if, reason, release
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import giver, taker
from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.facts.loop import Played
from kvproof.model.needs import Need
from kvproof.model.numbered import numbered
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine, Transfer
from kvproof.model.step import Read, Step


@check(
    "the reference count of a block equals the number of table entries that name it",
    origin="vllm#44409",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS, Need.REFERENCES),
)
def references_are_exact(engine: Engine) -> Iterator[Judged]:
    """vLLM allocated blocks for one group before it added references to the cached blocks of
    another group. The allocation took some of these cached blocks (vllm#44409). Two requests then
    held the same block with a reference count of one.

    The reference count of a block is the number of entries that name it, in block tables and in
    lists of blocks that are freed when a step ends.
    """
    entries = Counter(b for r in engine.requests for t in r.tables for b in t)
    entries.update(b for _, blocks in engine.deferred for b in blocks)
    right = 0
    for index, block in numbered(engine.blocks):
        if index == NULL:
            continue
        if block.refs == entries[index]:
            right += 1
        else:
            yield because(
                reason(
                    "entries_name_it",
                    "block {block} of {engine} stands in {entries} table entries",
                    entries=entries[index],
                ),
                reason(
                    "reference_count", "its reference count is {references}", references=block.refs
                ),
                engine=engine.name,
                block=index,
            )
    yield holds(right)


@check(
    "no block is both in the free queue and in a block table",
    origin="vllm#33775",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS,),
)
def no_block_free_and_held(engine: Engine) -> Iterator[Judged]:
    """If a block is in the free queue and in a block table, another request can take it while its
    first owner still reads it (vllm#33775). The first owner then reads the other request's KV."""
    free = set(engine.free)
    for request in engine.requests:
        for group, table in enumerate(request.tables):
            both = free.intersection(table)
            yield holds(len(table) - len(both))
            for block in both:
                yield because(
                    reason(
                        "holds_block", "{request} holds block {block} of {engine} in group {group}"
                    ),
                    reason("is_free", "block {block} is in the free queue"),
                    engine=engine.name,
                    request=request.id,
                    group=group,
                    block=block,
                )


@check(
    "the hash map maps a key to a block exactly if the block has this key",
    origin="vllm#49125",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS,),
)
def hash_map_is_sound(engine: Engine) -> Iterator[Judged]:
    """The hash map leads from a key to the blocks that hold its prefix. If a block is evicted and
    reused while its entry stays in the map (vllm#49125), a lookup of the old key returns the new
    content of the block.

    The null block has a check of its own.
    """
    mapped = {(key, b) for key, blocks in engine.cached for b in blocks if b != NULL}
    carried = {(key, i) for i, b in numbered(engine.blocks) if i != NULL for key in b.keys}
    yield holds(len(mapped & carried))
    for key, block in sorted(mapped - carried):
        yield because(
            reason(
                "is_mapped",
                "the hash map of {engine} maps prefix {prefix:quoted} of group "
                "{group} to block {block}",
            ),
            reason(
                "has_keys",
                "block {block} has the keys {keys:or none}",
                keys=engine.blocks[block].keys,
            ),
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )
    for key, block in sorted(carried - mapped):
        yield because(
            reason(
                "has_key",
                "block {block} of {engine} has the key of prefix {prefix:quoted} of group {group}",
            ),
            reason("is_not_mapped", "the hash map has no such entry"),
            engine=engine.name,
            group=key[0],
            block=block,
            prefix=key[1],
        )


def _null_in_pool(engine: Engine) -> Iterator[Judged]:
    """Judge that the null block is under no key of the hash map, and not in the free queue."""
    right = 0
    for key, blocks in engine.cached:
        if NULL not in blocks:
            right += 1
        else:
            yield because(
                reason(
                    "is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"
                ),
                reason("is_null", "its block is the null block, which holds no tokens"),
                engine=engine.name,
                group=key[0],
                prefix=key[1],
            )
    if NULL in engine.free:
        yield because(
            reason("never_allocated", "the null block of {engine} can never be allocated"),
            reason("is_free", "it is in the free queue"),
            engine=engine.name,
        )
    yield holds(right)


def _null_in_pairs(cluster: Cluster, transfer: Transfer) -> Iterator[Judged]:
    """Judge that the null block of neither engine is in a pair of a transfer."""
    parties = taker(cluster, transfer.request), giver(cluster, transfer.request)
    for group, (local, remote) in enumerate(transfer.pairs):
        sides = zip(parties, (local, remote), strict=True)
        null = [p.engine.name for p, ids in sides if NULL in logical(p.engine, group, ids)]
        if not null:
            yield holds(len(local))
            continue
        sink, source = (party.engine.name for party in parties)
        yield because(
            reason(
                "transfers_blocks",
                "blocks {local} of {engine} are filled from blocks {remote} of {source} "
                "for {request} in group {group}",
                local=local,
                remote=remote,
                source=source,
            ),
            reason(
                "one_is_null",
                "block 0 of {engines:all} is the null block, which holds no tokens",
                engines=null,
            ),
            engine=sink,
            request=transfer.request,
            group=group,
        )


def _null_is_read(reads: Iterable[Read]) -> Iterator[Judged]:
    """Judge that no request reads the null block."""
    right = 0
    for read in reads:
        if read.block != NULL:
            right += 1
        else:
            yield because(
                reason(
                    "reads_prefix",
                    "{request} reads prefix {expected:quoted} in group {group}",
                    expected=read.expected,
                ),
                reason("table_has_null", "its block table on {engine} has the null block there"),
                engine=read.engine,
                request=read.request,
                group=read.group,
            )
    yield holds(right)


@check(
    "the null block is never cached, free, transferred or read",
    origin="vllm#42547",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.NULL_BLOCK,),
)
def null_block_is_nobody(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """The null block is a placeholder in block tables and holds no tokens. vllm#42547 registered it
    under the hashes of loaded tokens, so that prefix lookups would succeed. Requests that hit these
    hashes then read the null block as if it held their prefix."""
    for _, engine in step.touched:
        yield from _null_in_pool(engine)
    for name in step.changed_transfers:
        transfer = step.after.transfer(name)
        if transfer is not None:
            yield from _null_in_pairs(cluster, transfer)
    yield from _null_is_read(step.effects.reads)


@check(
    "free, referenced and null blocks are all blocks, and the free queue has each free block once",
    origin="vllm#42571",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS,),
)
def pool_adds_up(engine: Engine) -> Iterator[Judged]:
    """A block is freed twice, and the free queue has it twice or its reference count is negative
    (vllm#42571). The pool then allocates one block to two requests. The engine fails much later, in
    `get_new_blocks`, far from the code with the mistake."""
    unreferenced = {i for i, b in numbered(engine.blocks) if b.refs == 0 and i != NULL}
    negative = [i for i, b in numbered(engine.blocks) if b.refs < 0 and i != NULL]
    if negative:
        yield because(
            reason(
                "count_is_not_negative",
                "the reference count of block {block} of {engine} is at least 0",
            ),
            reason(
                "has_count",
                "it is {references}: the block was freed more often than taken",
                references=engine.blocks[negative[0]].refs,
            ),
            engine=engine.name,
            block=negative[0],
        )
    elif len(engine.free) != len(unreferenced) or set(engine.free) != unreferenced:
        yield because(
            reason("free_queue", "the free queue of {engine} is {free}", free=engine.free),
            reason(
                "unreferenced",
                "the blocks without references are {unreferenced}",
                unreferenced=sorted(unreferenced),
            ),
            engine=engine.name,
        )
    else:
        yield holds(len(engine.blocks) - 1)


@check(
    "after all requests end, every block except the null block is free again",
    origin="vllm#46283",
    severity=Severity.LEAK,
    needs=(Need.FREE_WHEN_IDLE,),
)
def all_blocks_return(seen: Engine | Played) -> Iterator[Judged]:
    """D loads blocks from P, and the user aborts the request during the load. The engine keeps the
    blocks until the load completes. When the completion arrived late, the engine never freed them
    (vllm#32255, review; vllm#46283). Each such abort makes the pool smaller, until no request can
    be admitted.

    Some blocks are freed later than their request ends: after a step in flight, or after a
    transfer. A loop is judged where it waits for a message and nothing of this is left.
    """
    return _free_when_idle(seen) if isinstance(seen, Engine) else _free_when_waiting(seen)


def _free_when_idle(engine: Engine) -> Iterator[Judged]:
    if engine.requests or engine.steps:
        return
    yield holds_if(len(engine.free) == len(engine.blocks) - 1) or because(
        reason("no_request_left", "{engine} has no request left"),
        reason(
            "free_blocks",
            "{free} of its {pool} blocks are free",
            free=len(engine.free),
            pool=len(engine.blocks) - 1,
        ),
        engine=engine.name,
    )


def _free_when_waiting(played: Played) -> Iterator[Judged]:
    for wait in unpaused(played):
        if wait.waiting or wait.transfers or wait.steps or wait.sessions:
            continue
        yield holds_if(not wait.held) or because(
            idle(wait),
            reason(
                "held", "{blocks} blocks are not free, and no request is left", blocks=wait.held
            ),
        )


@check(
    "a block that is freed and that no hit can use is taken before blocks free for longer",
    origin="BlockPool.free_blocks; vllm#51482",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.REUSE_ORDER,),
)
def uncached_blocks_are_reused_at_once(step: Step) -> Iterator[Judged]:
    """A freed block that no hit can use is taken again before the blocks that have been free for
    longer, because its memory is still in the caches of the device. This applies where prefix
    caching is off, and to blocks without a key. vLLM lost this order when cached blocks got an
    order of their own, and then restored it (vllm#51482).

    The free queue is the order in which blocks are taken.
    """
    reset = isinstance(step.event, ResetPrefixCache | ResetRunning)
    for before, after in step.touched:
        was_free, older = set(before.free) - taken(step, after.name), 0
        for block in after.free:
            if block in was_free:
                older += 1
            elif not older:
                yield holds()
            elif not after.blocks[block].keys:
                was_cached = reset and before.blocks[block].keys
                yield because(
                    reason("freed", "block {block} of {engine} is freed now, and is not cached"),
                    reason("behind", "{blocks} blocks free for longer go first", blocks=older),
                    excuses=(choice("it was freed as a cached block, before the reset"),)
                    if was_cached
                    else (),
                    engine=after.name,
                    block=block,
                )
                break


def _taken_early(cluster: Cluster, before: Engine, after: Engine) -> Iterator[Judged]:
    """Judge each cached block that was taken: no block that no hit can use may have been free
    behind it in the queue during the whole step. A block in front of it may be free again: it was
    taken too, and its tokens left a window within the step."""
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
        yield holds_if(not left) or because(
            reason(
                "evicts",
                "block {block} of {engine} was cached under {tokens} tokens, and is taken for "
                "other tokens",
                tokens=max(len(key[1]) for key in keys),
            ),
            reason("free", "{blocks} free blocks are not cached", blocks=len(left)),
            excuses=(choice("a block that is evicted from outside keeps its place in the queue"),)
            if cluster.evictions
            else (),
            engine=before.name,
            block=block,
        )


def _hits(step: Step) -> set[int]:
    """The blocks that were hit or copied in a step, or filled by a copy. They count as freed later
    than before, also where they have the same key again."""
    hit = {block for choice in choices(step) for block in blocks_of(choice, "hit")}
    return hit | {block for copy in step.effects.copies for block in (copy.source, copy.target)}


def _queued_early(before: Engine, after: Engine, hit: set[int]) -> Iterator[Judged]:
    """Judge each cached block that was freed in this step: it must not be taken before a cached
    block that was free already and was not `hit` in this step."""
    was_free = set(before.free)
    kept = {b for b in was_free - hit if before.blocks[b].keys == after.blocks[b].keys}
    older = [b for b in after.free if b in kept and after.blocks[b].keys]
    if not older:
        return
    last = after.free.index(older[-1])
    for place, block in enumerate(after.free):
        if block in was_free or not after.blocks[block].keys:
            continue
        yield holds_if(place > last) or because(
            reason("freed", "block {block} of {engine} is cached, and is freed now"),
            reason(
                "before",
                "it will be taken before block {other}, which is cached and was free before",
                other=older[-1],
            ),
            engine=after.name,
            block=block,
        )


def _prefix_goes_first(cfg: EngineConfig, before: Engine, after: Engine) -> Iterator[Judged]:
    """Judge each cached block that was freed in this step: it must not be taken before a later
    block of the same prefix that was freed in this step too."""
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
        useless = [
            other
            for other, longer in freed[place + 1 :]
            if longer[0] == key[0]
            and longer[1].startswith(key[1])
            and longer != key
            and after.blocks_for(key) == (block,)
            and other != block
        ]
        if not useless:
            yield holds()
        for other in useless:
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
                excuses=(
                    choice("the end of a prompt may be in two blocks, and one of them is enough"),
                )
                if cfg.partial_block_hits
                else (),
                engine=after.name,
                block=block,
            )


@check(
    "free blocks that can still be hit are taken last, the least recently used first",
    origin="BlockPool.free_blocks; vllm#42656",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.REUSE_ORDER,),
)
def unneeded_blocks_are_reused_first(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A free block that is cached can still be hit. So a step takes the free blocks that no hit can
    use before the cached ones, and the cached ones in the order in which they were freed. Of the
    blocks that one event frees, a later block of a prefix goes first: without an earlier one it
    cannot be hit. In any other order every answer is right, but prefixes are computed again
    (vllm#42656).

    The free queue is the order in which blocks are taken. A block that is evicted from outside may
    lose its key in the middle of the queue. The order in one event is that of full attention, since
    a window needs no earlier blocks. An earlier block is one that its prefix fills.
    """
    for before, after in step.touched:
        # Cannot be judged: without a cache no block can be hit.
        if cluster.engine(after.name).prefix_caching:
            yield from _taken_early(cluster, before, after)
            yield from _queued_early(before, after, _hits(step))
            yield from _prefix_goes_first(cluster.engine(after.name), before, after)


@check(
    "the blocks of a request that ends are free at once, unless a step in flight may use them",
    origin="vllm#45357",
    severity=Severity.LEAK,
    needs=(Need.BLOCKS_IN_FLIGHT, Need.COMPUTED),
    ideal=True,
)
def ended_requests_free_at_once(step: Step) -> Iterator[Judged]:
    """A request ends while steps are in flight that write to its blocks. Its blocks wait until the
    outputs of these steps arrive, and nobody else can use them (vllm#45357). Blocks that wait
    although no step in flight uses them keep other requests waiting for nothing. Only pairs are
    judged by this sentence.
    """
    for before, after in step.touched:
        if after.deferred is before.deferred:
            continue
        known = {block for _, blocks in before.deferred for block in blocks}
        used = {block for flights in before.steps for flight in flights for block in flight.blocks}
        for _, blocks in after.deferred:
            for block in blocks:
                if block in known:
                    continue
                yield holds_if(block in used) or because(
                    reason("waits", "block {block} of {engine} waits for steps in flight"),
                    reason("unused", "none of them uses it"),
                    excuses=(
                        release("all blocks of an ended request wait for all steps in flight"),
                    ),
                    engine=after.name,
                    block=block,
                )
