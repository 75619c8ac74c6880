"""The coordinator: hits that hold in every group, admission, growth and caching over all groups.

Sources: `KVCacheManager.allocate_slots` and `HybridKVCacheCoordinator` of vLLM V1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model import config, kv_events
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import capacity, groups, kept_state, partial_block_hits, pool
from kvproof.model.reference.rules import SPEC, Rules
from kvproof.model.state import DRAFT, NULL, Engine, Request, Table


class Hit(NamedTuple):
    """A local prefix hit in tokens, each group's own part of it, and the junction to stop at."""

    tokens: int
    own: tuple[int, ...]
    shared_prefix_boundary: int


def _longest(cfg: config.Engine, tokens: str, rules: Rules) -> int:
    """The longest hit that a prompt could have."""
    known = len(tokens)
    if cfg.eagle_drop_tokens:
        known = rules.matched_tokens(known, len(cfg.groups))
    return int(rules.longest_hit_tokens(known, cfg.hit_unit, cfg.eagle_drop_tokens))


def _lengths(cfg: config.Engine, tokens: str, rules: Rules) -> range:
    """Candidate hit lengths, longest first."""
    return range(_longest(cfg, tokens, rules), -1, -cfg.hit_unit)


def longest_alone(
    cfg: config.Engine, engine: Engine, tokens: str, index: int, limit: int, rules: Rules = SPEC
) -> int:
    """The longest hit, up to `limit` tokens, that one group could serve by itself."""
    group = cfg.groups[index]
    for length in _lengths(cfg, tokens, rules):
        if length <= limit and groups.resident(group, index, engine, tokens, length, rules):
            return length
    return 0


def longest_together(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules) -> int:
    """The longest hit that holds in every group, and that the engine has room for."""
    for length in _lengths(cfg, tokens, rules):
        if cfg.partial_block_hits and not rules.hit_fits_pool(
            capacity.blocks_with_hit(cfg, length, len(tokens)), cfg.num_blocks
        ):
            continue
        if length == 0 or rules.hit_holds(
            groups.resident(g, i, engine, tokens, length, rules) for i, g in enumerate(cfg.groups)
        ):
            return rules.settled_hit(length, len(cfg.groups))
    return 0


def longest_full(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules = SPEC) -> int:
    """The longest hit of the full-attention groups by themselves; 0 where there are none."""
    full = [i for i, g in enumerate(cfg.groups) if g.kind == "full"]
    return min((longest_alone(cfg, engine, tokens, i, len(tokens), rules) for i in full), default=0)


def each_alone(
    cfg: config.Engine, engine: Engine, tokens: str, rules: Rules = SPEC
) -> Iterator[int]:
    """The longest hits that the groups could serve, each by itself."""
    for index in range(len(cfg.groups)):
        yield longest_alone(cfg, engine, tokens, index, len(tokens), rules)


def deeper(cfg: config.Engine, engine: Engine, tokens: str, rules: Rules = SPEC) -> bool:
    """Whether some group alone could serve a longer hit than full attention, part of which was
    evicted."""
    full = longest_full(cfg, engine, tokens, rules)
    return any(alone > full for alone in each_alone(cfg, engine, tokens, rules))


def look_up(
    cfg: config.Engine, engine: Engine, tokens: str, hit: int, external: int, rules: Rules
) -> Hit:
    """The hit of this length. Raises NotAllowed where the cache does not hold it.

    A hit must hold in every group. Where P brings the tokens after it, it brings the states and
    windows too, so only the full-attention groups must hold it
    (`get_computed_blocks_for_connector`). A store is asked about what all groups hold.
    """
    if not cfg.prefix_caching and hit:
        raise NotAllowed("prefix caching is off and there is a hit")
    brought = external > 0 and rules.connector_brings_states(cfg)
    whole = hit == 0 or rules.hit_holds(
        groups.resident(g, i, engine, tokens, hit, rules) for i, g in enumerate(cfg.groups)
    )
    if not whole and not (brought and hit <= longest_full(cfg, engine, tokens, rules)):
        raise NotAllowed(f"a hit of {hit} tokens does not hold in every group")
    if hit % cfg.hit_unit or hit > _longest(cfg, tokens, rules):
        raise NotAllowed(f"a hit of {hit} tokens is not a whole number of blocks before the end")
    if cfg.partial_block_hits and hit and not capacity.has_room_for_hit(cfg, hit, len(tokens)):
        raise NotAllowed(f"a hit of {hit} tokens has no room, copies included")
    own = tuple(
        hit if whole else longest_alone(cfg, engine, tokens, i, hit, rules)
        for i in range(len(cfg.groups))
    )
    return Hit(hit, own, _junction(cfg, engine, tokens, hit, external, rules))


def _junction(
    cfg: config.Engine, engine: Engine, tokens: str, hit: int, external: int, rules: Rules
) -> int:
    """Where this prompt and a cached one part, as far as a state should be kept there. A request
    that takes the hit of full attention and gets the state from P looks no further."""
    if not cfg.marks_shared_prefix_boundaries or not cfg.prefix_caching:
        return 0
    full = longest_full(cfg, engine, tokens, rules)
    looks = not external or cfg.store or not cfg.has_state or deeper(cfg, engine, tokens, rules)
    return rules.shared_prefix_boundary(full, hit) if looks else 0


def _left_behind(group: config.Group, request: Request, hit: Hit, rules: Rules) -> int:
    """Leading blocks a group never needs of a hit and a load: a state is judged by the tokens
    loaded, a window by the token the request resumes at."""
    total = hit.tokens + request.external
    if request.external and group.kind == "window":
        total = int(rules.needed_from_load(total, len(request.tokens)))
    return groups.skipped_blocks(group, total, rules)


def _ahead(cfg: config.Engine, request: Request, hit: Hit | None, end: int, rules: Rules) -> int:
    """Slots after `end` that a drafter may write. While a load is under way nothing is computed:
    D takes none, so that its blocks are those P offers."""
    loads = hit is not None and request.external and end == hit.tokens + request.external
    return 0 if loads else rules.lookahead(cfg.lookahead)


def predicted(
    cfg: config.Engine, engine: Engine, request: Request, hit: Hit | None, end: int, rules: Rules
) -> int:
    """Blocks that leave the free queue when the request grows to `end` tokens."""
    total = 0
    ahead = _ahead(cfg, request, hit, end, rules)
    for index, group in enumerate(cfg.groups):
        hitting = request if hit is None else request._replace(hit=hit.tokens)
        copied = partial_block_hits.copies(cfg, engine, hitting, index, hit is not None, rules)
        total += rules.copies_predicted(copied)
        if hit is None:
            total += groups.grown(cfg, group, request.tables[index], end, rules)
            continue
        blocks = groups.hit_blocks(group, index, engine, request.tokens, hit.own[index], rules)
        skipped = _left_behind(group, request, hit, rules)
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
    """Blocks for states that an admission to `end` tokens takes, where the table begins with `held`
    entries: one for the state a load brings, and one for the chunk computed after it."""
    size, brought = group.block_size, 0
    loaded = rules.tokens_loaded_before_chunk(loaded, end)
    if loaded:
        brought = int(rules.state_blocks_predicted(loaded, size, held))
        held = max(held, int(counts.blocks_for_tokens(loaded, size)))
    return brought + groups.grown(cfg, group, (NULL,) * held, end, rules, fresh=True)


def admit(
    cfg: config.Engine, engine: Engine, request: Request, hit: Hit, rules: Rules
) -> tuple[Engine, Request]:
    """Give a request its hit blocks, then blocks for the tokens its connector brings. The hits of
    all groups are referenced before any block is taken (vllm#44409)."""
    total = hit.tokens + request.external
    tables: list[Table] = []
    num_cached_blocks = []
    for index, group in enumerate(cfg.groups):
        blocks = groups.hit_blocks(group, index, engine, request.tokens, hit.own[index], rules)
        skipped = _left_behind(group, request, hit, rules)
        tables.append((*([NULL] * skipped), *blocks[skipped:]))
        still = request.num_cached_blocks[index] if request.num_cached_blocks else 0
        whole = int(counts.full_blocks(hit.own[index], group.block_size))
        num_cached_blocks.append(max(int(rules.counted_after_hit(whole, skipped)), still))
        engine = rules.touch_hits(engine, tables[-1])
    if request.external:
        for index, group in enumerate(cfg.groups):
            missing = counts.blocks_for_tokens(total, group.block_size) - len(tables[index])
            engine, taken = pool.take(engine, max(missing, 0), rules)
            tables[index] = (*tables[index], *taken)
    request = request._replace(
        computed=total,
        tables=tuple(tables),
        num_cached_blocks=tuple(num_cached_blocks),
        hit=hit.tokens,
        shared_prefix_boundary=hit.shared_prefix_boundary,
    )
    return engine.with_request(request), request


def grow(
    cfg: config.Engine,
    engine: Engine,
    request: Request,
    end: int,
    rules: Rules,
    fresh: bool = False,
    loads: bool = False,
) -> tuple[Engine, Request]:
    """Take the blocks a request needs to reach `end` tokens. The tables of a `fresh` one have hits
    only, and what a connector brings. One that `loads` computes nothing yet."""
    tables = []
    ahead = 0 if loads else None
    for index, group in enumerate(cfg.groups):
        table = request.tables[index]
        count = max(groups.grown(cfg, group, table, end, rules, fresh, ahead), 0)
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


def _cache_end(
    cfg: config.Engine, engine: Engine, request: Request, index: int, cacheable: int, rules: Rules
) -> Engine:
    """Cache the block in which the prompt ends once more, under the last prefix that a hit finer
    than a block could end at: in attention once it is there, of Mamba the state where a chunk ends
    at it."""
    size = cfg.groups[index].block_size
    end = int(rules.longest_hit_tokens(len(request.prompt), cfg.hash_unit))
    key = (index, request.tokens[:end])
    missed = end < cacheable and cfg.groups[index].aligned
    if end % size == 0 or end > cacheable or missed:
        return engine
    block = request.tables[index][int(counts.full_blocks(end, size))]
    if key in engine.blocks[block].keys:
        return engine
    engine = pool.promote(engine, key, block, rules)
    return kv_events.stored_inside(engine, *key, cfg.hash_unit)


def cache(
    cfg: config.Engine, engine: Engine, request: Request, upto: int, rules: Rules
) -> tuple[Engine, Request]:
    """Cache the full blocks of the first `upto` tokens that are not counted yet."""
    if not cfg.prefix_caching:
        return engine, request
    num_cached_blocks = list(request.num_cached_blocks)
    tokens = request.tokens.ljust(upto, DRAFT)
    for index, group in enumerate(cfg.groups):
        eagle_drop_tokens = group.block_size if group.eagle else 0
        cacheable = upto
        if not cfg.partial_block_hits:
            cacheable = int(counts.cacheable_tokens(upto, cfg.hit_unit, eagle_drop_tokens))
        full = counts.full_blocks(cacheable, group.block_size)
        new = []
        for position in range(num_cached_blocks[index], full):
            block = request.tables[index][position]
            key = (index, tokens[: (position + 1) * group.block_size])
            if not groups.worth_caching(cfg, group, position, request, rules):
                continue
            before = engine
            engine = rules.cache_block(cfg, group, engine, key, block, rules)
            if engine.dead:
                return engine, request
            if engine is not before:
                new.append(position)
        looked_at = range(num_cached_blocks[index], full)
        engine = kv_events.stored(
            engine, index, group.block_size, request.tokens, looked_at, new, rules
        )
        if full == num_cached_blocks[index]:
            engine = kept_state.cached_after_all(cfg, engine, request, index, full, rules)
        if rules.caches_prompt_end(cfg, group):
            engine = _cache_end(cfg, engine, request, index, cacheable, rules)
        num_cached_blocks[index] = max(num_cached_blocks[index], full)
    request = request._replace(num_cached_blocks=tuple(num_cached_blocks))
    return engine.with_request(request), request


def release_skipped(
    cfg: config.Engine, engine: Engine, request: Request, rules: Rules, computed: int | None = None
) -> tuple[Engine, Request]:
    """Let go of blocks that the computed tokens (by default the request's) have left behind."""
    computed = request.computed if computed is None else computed
    tables = list(request.tables)
    for index, group in enumerate(cfg.groups[: len(tables)]):
        table = tables[index]
        behind = min(groups.skipped_blocks(group, computed, rules), len(table))
        engine = pool.release(engine, reversed(table[:behind]), rules)
        tables[index] = (*([NULL] * behind), *table[behind:])
    request = request._replace(tables=tuple(tables))
    return engine.with_request(request), request
