"""Allocation over all groups: how the tables of a request grow, how many blocks this is predicted
to take, and how blocks are freed that the computed tokens no longer need.

A request gets the first blocks of the model's free queue, or the blocks of a recorded choice.

Sources: `KVCacheManager.allocate_slots`, `KVCacheCoordinator.get_num_blocks_to_allocate` and
`remove_skipped_blocks` of vLLM V1.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvproof.model import block_lists, config, group_needs
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Lists
from kvproof.model.reference.blocks import groups, partial_block_hits, pool
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import NULL, Engine, Request, Table


def _left_behind(request: Request, group: config.Group, hit: Hit) -> int:
    """The number of leading blocks that a group does not need after a hit and a load. For a state
    this depends on the loaded tokens, for a window on the token at which the request resumes."""
    total = hit.tokens + request.external
    if request.external and group.kind == "window":
        total = int(counts.needed_from_load(total, len(request.tokens)))
    return group_needs.skipped_blocks(group, total)


def _ahead(cfg: config.EngineConfig, request: Request, hit: Hit | None, end: int) -> int:
    """The number of slots after `end` that a drafter may write to. During a load nothing is
    computed, so D takes no such slots and its blocks match P's."""
    loads = hit is not None and request.external and end == hit.tokens + request.external
    return 0 if loads else cfg.lookahead


def predicted(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit | None, end: int
) -> int:
    """The number of blocks that leave the free queue when the request grows to `end` tokens."""
    total = 0
    ahead = _ahead(cfg, request, hit, end)
    for index, group in enumerate(cfg.groups):
        hitting = request if hit is None else request._replace(hit=hit.tokens)
        copied = partial_block_hits.copies(cfg, engine, hitting, index, hit is not None)
        total += copied
        if hit is None:
            total += group_needs.grown(cfg, group, request.tables[index], end, ahead)
            continue
        blocks = groups.hit_blocks(cfg, engine, index, request.tokens, hit.own[index])
        skipped = _left_behind(request, group, hit)
        used = blocks[skipped:]
        if group.aligned:
            # Of a hit, the table of a Mamba group has only the last block.
            used = blocks if counts.state_is_used(len(blocks), skipped) else ()
            loaded = hit.tokens + request.external
            new = _states(cfg, group, len(blocks), loaded, end)
        else:
            held = (NULL,) * max(len(blocks), skipped)
            new = group_needs.grown(cfg, group, held, end, ahead, fresh=True)
        idle = sum(1 for b in used if b != NULL and engine.blocks[b].refs == 0)
        total += int(counts.blocks_from_queue(new, idle))
    return total


def _states(cfg: config.EngineConfig, group: config.Group, held: int, loaded: int, end: int) -> int:
    """The number of state blocks for an admission to `end` tokens, where the table begins with
    `held` entries: one for the state of a load, and one for the chunk computed after it."""
    size, brought = group.block_size, 0
    loaded = tokens_loaded_before_chunk(loaded, end)
    if loaded:
        brought = int(counts.state_blocks_predicted(loaded, size, held))
        held = max(held, int(counts.blocks_for_tokens(loaded, size)))
    return brought + group_needs.grown(cfg, group, (NULL,) * held, end, 0, fresh=True)


def admit(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit
) -> tuple[Engine, Request]:
    """Give a request the blocks of its hit, then blocks for the connector's tokens."""
    total = hit.tokens + request.external
    tables: list[Table] = []
    missing = []
    num_cached_blocks = []
    for index, group in enumerate(cfg.groups):
        blocks = groups.hit_blocks(cfg, engine, index, request.tokens, hit.own[index])
        skipped = _left_behind(request, group, hit)
        tables.append((*([NULL] * skipped), *blocks[skipped:]))
        still = request.num_cached_blocks[index] if request.num_cached_blocks else 0
        whole = int(counts.full_blocks(hit.own[index], group.block_size))
        num_cached_blocks.append(max(int(counts.blocks_counted_after_hit(whole, skipped)), still))
        end = int(counts.blocks_for_tokens(total, group.block_size)) if request.external else 0
        missing.append(max(end - len(tables[-1]), 0))
    engine, tables = touch_and_take(engine, tables, missing)
    request = request._replace(
        computed=total,
        tables=tuple(tables),
        num_cached_blocks=tuple(num_cached_blocks),
        hit=hit.tokens,
        shared_prefix_boundary=hit.shared_prefix_boundary,
    )
    return engine.with_request(request), request


def touch_and_take(
    engine: Engine, hits: Sequence[Table], missing: Sequence[int]
) -> tuple[Engine, list[Table]]:
    """The tables of an admitted request: its hits, and the missing blocks of each group. The hits
    of all groups are referenced before any block is taken (vllm#44409)."""
    for table in hits:
        engine = pool.touch(engine, table)
    tables = []
    for table, count in zip(hits, missing, strict=True):
        engine, taken = pool.take(engine, count)
        tables.append((*table, *taken))
    return engine, tables


def extend(
    cfg: config.EngineConfig,
    engine: Engine,
    request: Request,
    end: int,
    *,
    fresh: bool = False,
    loads: bool = False,
) -> tuple[Engine, Request]:
    """Take the blocks a request needs to reach `end` tokens. The tables of a `fresh` request have
    only the blocks of its hit and of the connector's tokens. A request that `loads` computes
    nothing yet."""
    tables = []
    ahead = 0 if loads else cfg.lookahead
    for index, group in enumerate(cfg.groups):
        table = request.tables[index]
        count = max(group_needs.grown(cfg, group, table, end, ahead, fresh=fresh), 0)
        if partial_block_hits.copies(cfg, engine, request, index, fresh):
            engine, table = partial_block_hits.copy_block(cfg, engine, request, index, fresh)
        padded = table
        if count:
            padded = groups.padded(cfg, group, table, end, fresh)
        engine, taken = pool.take(engine, count)
        tables.append((*padded, *taken))
    request = request._replace(tables=tuple(tables))
    return engine.with_request(request), request


def release_skipped(
    cfg: config.EngineConfig, engine: Engine, request: Request, *, computed: int | None = None
) -> tuple[Engine, Request]:
    """Free the blocks that `computed` tokens (by default the request's) no longer need."""
    computed = request.computed if computed is None else computed
    tables = list(request.tables)
    for index, group in enumerate(cfg.groups[: len(tables)]):
        table = tables[index]
        behind = min(group_needs.skipped_blocks(group, computed), len(table))
        engine = pool.release(engine, reversed(table[:behind]))
        tables[index] = (*([NULL] * behind), *table[behind:])
    request = request._replace(tables=tuple(tables))
    return engine.with_request(request), request


def tokens_loaded_before_chunk(loaded: int, end: int) -> int:
    """The number of loaded tokens in a step that then computes up to `end`; 0 where the step
    computes nothing."""
    return loaded if loaded < end else 0


def without_progress(request: Request) -> Request:
    """The request without blocks and computed tokens, as after a preemption."""
    return request._replace(
        tables=(),
        num_cached_blocks=(),
        computed=0,
        hit=0,
        external=0,
        shared_prefix_boundary=0,
        drafts=0,
        states=(),
    )


class Grown(NamedTuple):
    """An engine after a request has grown, and its new blocks: the blocks of the hit, the blocks
    for the connector's tokens (`brought`), and the blocks for the tokens to compute (`taken`)."""

    engine: Engine
    request: Request
    hit: Lists = ()
    brought: Lists = ()
    taken: Lists = ()

    @property
    def from_queue(self) -> Lists:
        """All blocks that were taken from the free queue."""
        return block_lists.both(self.brought, self.taken)


def grow(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit | None, end: int
) -> Grown:
    """Grow a request to `end` tokens. A request with a hit is admitted first."""
    given: Lists = ((),) * len(cfg.groups)
    brought = given
    if hit is not None:
        engine, request = admit(cfg, engine, request, hit)
        sizes = (group.block_size for group in cfg.groups)
        lengths = [int(counts.blocks_for_tokens(*g)) for g in zip(hit.own, sizes, strict=True)]
        given, brought = block_lists.split(request.tables, lengths)
    tables, copies = request.tables, len(engine.copies)
    loads = end == request.computed
    if not loads or cfg.drafts:
        engine, request = extend(cfg, engine, request, end, fresh=hit is not None, loads=loads)
    taken = block_lists.taken(tables, request.tables, engine.copies[copies:])
    return Grown(engine, request, given, brought, taken)


def follow(
    cfg: config.EngineConfig,
    engine: Engine,
    request: Request,
    hit: Hit | None,
    end: int,
    recorded: Lists,
) -> Grown:
    """Grow a request with the blocks of a recorded choice, if it has blocks. Raises NotAllowed
    where their number is wrong, or where they are not free."""
    own = grow(cfg, engine, request, hit, end)
    if not recorded or own.engine.dead != engine.dead or own.from_queue == recorded:
        return own
    for index, (ours, theirs) in enumerate(zip(own.from_queue, recorded, strict=True)):
        if len(ours) != len(theirs):
            raise NotAllowed(
                f"{request.id} takes {len(theirs)} blocks in group {index} but needs {len(ours)}"
            )
        for block in theirs:
            if block not in engine.free:
                raise NotAllowed(f"{request.id} takes block {block}, which is not free")
    places = {
        ours: theirs
        for group in zip(own.from_queue, recorded, strict=True)
        for ours, theirs in zip(*group, strict=True)
    }
    first = [places[block] for block in engine.free if block in places]
    grown = grow(cfg, pool.with_first_free(engine, first), request, hit, end)
    if grown.from_queue != recorded:
        raise NotAllowed(f"{request.id} takes a block twice, or takes a block of its hit")
    return grown
