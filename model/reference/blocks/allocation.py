"""Allocation over all groups: how the tables of a request grow, how many blocks this is predicted
to take, and how blocks are freed that the computed tokens no longer need.

Sources: `KVCacheManager.allocate_slots`, `KVCacheCoordinator.get_num_blocks_to_allocate` and
`remove_skipped_blocks` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import groups, partial_block_hits, pool
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.rules import Rules
from kvproof.model.state import NULL, Engine, Request, Table


def _left_behind(request: Request, group: config.Group, hit: Hit, rules: Rules) -> int:
    """The number of leading blocks that a group does not need after a hit and a load. For a state
    this depends on the loaded tokens, for a window on the token at which the request resumes."""
    total = hit.tokens + request.external
    if request.external and group.kind == "window":
        total = int(rules.needed_from_load(total, len(request.tokens)))
    return groups.skipped_blocks(group, total, rules)


def _ahead(cfg: config.Engine, request: Request, hit: Hit | None, end: int, rules: Rules) -> int:
    """The number of slots after `end` that a drafter may write to. During a load nothing is
    computed, so D takes no such slots and its blocks match P's."""
    loads = hit is not None and request.external and end == hit.tokens + request.external
    return 0 if loads else _reserved(cfg, hit is not None, rules)


def _reserved(cfg: config.Engine, fresh: bool, rules: Rules) -> int:
    """The number of slots that a drafter may write to, in an admission (`fresh`) or later."""
    ahead = rules.lookahead(cfg.lookahead)
    return rules.lookahead_at_admission(ahead) if fresh else ahead


def predicted(
    cfg: config.Engine, engine: Engine, request: Request, hit: Hit | None, end: int, rules: Rules
) -> int:
    """The number of blocks that leave the free queue when the request grows to `end` tokens."""
    total = 0
    ahead = _ahead(cfg, request, hit, end, rules)
    for index, group in enumerate(cfg.groups):
        hitting = request if hit is None else request._replace(hit=hit.tokens)
        copied = partial_block_hits.copies(cfg, engine, hitting, index, hit is not None, rules)
        total += rules.copies_predicted(copied)
        if hit is None:
            total += groups.grown(cfg, group, request.tables[index], end, ahead, rules)
            continue
        blocks = groups.hit_blocks(cfg, engine, index, request.tokens, hit.own[index], rules)
        skipped = _left_behind(request, group, hit, rules)
        held = blocks[rules.states_superseded(skipped) if group.aligned else skipped :]
        evictable = sum(1 for b in held if b != NULL and engine.blocks[b].refs == 0)
        if group.aligned:
            loaded = hit.tokens + request.external
            total += _states(cfg, group, len(blocks), loaded, end, rules)
        else:
            slots = end + ahead + groups.slots_for_states(cfg, group)
            total += int(
                rules.attention_blocks_predicted(slots, group.block_size, len(blocks), skipped)
            )
        total += rules.evictable_hit_blocks(evictable)
    return total


def _states(
    cfg: config.Engine, group: config.Group, held: int, loaded: int, end: int, rules: Rules
) -> int:
    """The number of state blocks for an admission to `end` tokens, where the table begins with
    `held` entries: one for the state of a load, and one for the chunk computed after it."""
    size, brought = group.block_size, 0
    loaded = rules.tokens_loaded_before_chunk(loaded, end)
    if loaded:
        brought = int(rules.state_blocks_predicted(loaded, size, held))
        held = max(held, int(counts.blocks_for_tokens(loaded, size)))
    return brought + groups.grown(cfg, group, (NULL,) * held, end, 0, rules, fresh=True)


def admit(
    cfg: config.Engine, engine: Engine, request: Request, hit: Hit, rules: Rules
) -> tuple[Engine, Request]:
    """Give a request the blocks of its hit, then blocks for the connector's tokens."""
    total = hit.tokens + request.external
    tables: list[Table] = []
    missing = []
    num_cached_blocks = []
    for index, group in enumerate(cfg.groups):
        blocks = groups.hit_blocks(cfg, engine, index, request.tokens, hit.own[index], rules)
        skipped = _left_behind(request, group, hit, rules)
        tables.append((*([NULL] * skipped), *blocks[skipped:]))
        still = request.num_cached_blocks[index] if request.num_cached_blocks else 0
        whole = int(counts.full_blocks(hit.own[index], group.block_size))
        num_cached_blocks.append(max(int(rules.counted_after_hit(whole, skipped)), still))
        end = int(counts.blocks_for_tokens(total, group.block_size)) if request.external else 0
        missing.append(max(end - len(tables[-1]), 0))
    engine, tables = rules.touch_and_take(engine, tables, missing, rules)
    request = request._replace(
        computed=total,
        tables=tuple(tables),
        num_cached_blocks=tuple(num_cached_blocks),
        hit=hit.tokens,
        shared_prefix_boundary=hit.shared_prefix_boundary,
    )
    return engine.with_request(request), request


def touch_and_take(
    engine: Engine, hits: Sequence[Table], missing: Sequence[int], rules: Rules
) -> tuple[Engine, list[Table]]:
    """The tables of an admitted request: its hits, and the missing blocks of each group. The hits
    of all groups are referenced before any block is taken (vllm#44409)."""
    for table in hits:
        engine = rules.touch_hits(engine, table)
    tables = []
    for table, count in zip(hits, missing, strict=True):
        engine, taken = pool.take(engine, count, rules)
        tables.append((*table, *taken))
    return engine, tables


def grow(
    cfg: config.Engine,
    engine: Engine,
    request: Request,
    end: int,
    rules: Rules,
    *,
    fresh: bool = False,
    loads: bool = False,
) -> tuple[Engine, Request]:
    """Take the blocks a request needs to reach `end` tokens. The tables of a `fresh` request have
    only the blocks of its hit and of the connector's tokens. A request that `loads` computes
    nothing yet."""
    tables = []
    ahead = 0 if loads else _reserved(cfg, fresh, rules)
    for index, group in enumerate(cfg.groups):
        table = request.tables[index]
        count = max(groups.grown(cfg, group, table, end, ahead, rules, fresh=fresh), 0)
        if partial_block_hits.copies(cfg, engine, request, index, fresh, rules):
            engine, table = partial_block_hits.copy_block(cfg, engine, request, index, fresh, rules)
        padded = table
        needed = int(counts.blocks_for_tokens(end, group.block_size)) + cfg.drafts
        if count:
            padded = groups.padded(cfg, group, table, end, fresh)
        engine, taken = rules.allocate(engine, group, len(table), needed, count, rules)
        tables.append((*padded, *taken))
    request = request._replace(tables=tuple(tables))
    return engine.with_request(request), request


def release_skipped(
    cfg: config.Engine,
    engine: Engine,
    request: Request,
    rules: Rules,
    *,
    computed: int | None = None,
) -> tuple[Engine, Request]:
    """Free the blocks that `computed` tokens (by default the request's) no longer need."""
    computed = request.computed if computed is None else computed
    tables = list(request.tables)
    for index, group in enumerate(cfg.groups[: len(tables)]):
        table = tables[index]
        behind = min(groups.skipped_blocks(group, computed, rules), len(table))
        engine = pool.release(engine, reversed(table[:behind]), rules)
        tables[index] = (*([NULL] * behind), *table[behind:])
    request = request._replace(tables=tuple(tables))
    return engine.with_request(request), request


def tokens_loaded_before_chunk(loaded: int, end: int) -> int:
    """The number of loaded tokens in a step that then computes up to `end`; 0 where the step
    computes nothing."""
    return loaded if loaded < end else 0


def without_progress(request: Request) -> Request:
    """The request without blocks and computed tokens."""
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
