"""Cache groups: the blocks that each kind needs for a hit, and the blocks that it may free.

Each function handles the three kinds: full attention, sliding window, Mamba.
"""

from kvproof.model import config, group_needs
from kvproof.model.arithmetic import counts
from kvproof.model.state import NULL, Engine, Request, Table


def matched_and_dropped(length: int, block_size: int) -> tuple[int, ...]:
    """Positions of the blocks that must match in addition to a hit of `length` tokens where the
    group has drafter layers: the block after the hit, which is dropped (vllm#17137)."""
    return (int(counts.full_blocks(length, block_size)),)


def blocks_matched(cfg: config.EngineConfig, index: int, length: int) -> tuple[int, ...]:
    """Positions of the blocks that must match for a hit of `length` tokens: the needed blocks, and
    where the group has drafter layers one more, which is dropped."""
    group = cfg.groups[index]
    needed = tuple(group_needs.blocks_needed(group, length))
    if not length or not cfg.drops_match(group):
        return needed
    return (*needed, *matched_and_dropped(length, group.block_size))


def hashed_prefix(tokens: str, end: int, ahead: int) -> str:
    """The tokens that the hash of a block covers: all tokens up to `end`, and `ahead` more, because
    the KV of a drafter's layers for the last token depends on them (vllm#50438)."""
    return tokens[: end + ahead]


def prefixes_for(
    cfg: config.EngineConfig, index: int, tokens: str, length: int, position: int
) -> tuple[str, ...]:
    """The prefixes under which the block at this position may be cached to serve a hit, in the
    order of the look-up. Where the hit ends inside the block, a state serves only the exact prefix
    of the hit. An attention block may also be cached under a longer prefix, if that leaves a token
    to compute."""
    group = cfg.groups[index]
    end = (position + 1) * group.block_size
    if length % group.block_size == 0 or length > end:
        return (hashed_prefix(tokens, end, cfg.hash_lookahead_tokens),)
    if not group.attention:
        return (tokens[:length],)
    longest = min(end, len(tokens) - 1)
    return tuple(tokens[:last] for last in range(longest, length - 1, -1))


def block_at(
    cfg: config.EngineConfig, engine: Engine, index: int, tokens: str, length: int, position: int
) -> int:
    """The cached block that serves a hit at this position, or the null block."""
    for prefix in prefixes_for(cfg, index, tokens, length, position):
        blocks = engine.blocks_for((index, prefix))
        if blocks:
            return blocks[0]
    return NULL


def resident(
    cfg: config.EngineConfig, engine: Engine, index: int, tokens: str, length: int
) -> bool:
    """Whether this group has all blocks for a hit of `length` tokens."""
    group = cfg.groups[index]
    if length and group.kind == "mamba" and not group.aligned:
        return False
    return all(
        any(
            engine.blocks_for((index, prefix))
            for prefix in prefixes_for(cfg, index, tokens, length, position)
        )
        for position in blocks_matched(cfg, index, length)
    )


def worth_caching(
    cfg: config.EngineConfig, request: Request, group: config.Group, position: int
) -> bool:
    """Whether the block at this position is cached. Full attention caches all blocks, other groups
    the blocks that a hit can need and that the engine retains."""
    size = group.block_size
    if group.kind == "full" or (group.kind == "mamba" and cfg.retention is None):
        return True
    if cfg.retention is None:
        dropped = int(cfg.drops_match(group))
        return bool(counts.serves_a_hit(position, group.window, size, cfg.hit_unit, dropped))
    window = group.window if group.kind == "window" else group_needs.STATE_WINDOW
    boundaries = len(request.prompt), request.shared_prefix_boundary
    drafted = (cfg.eagle_drop_tokens, int(group.eagle)) if cfg.eagle_drop_tokens else ()
    unit = max(cfg.hit_unit, size)  # a state is retained only at the end of a block
    return bool(
        counts.is_retained(position, window, size, unit, cfg.retention, *boundaries, *drafted)
    )


def hit_blocks(
    cfg: config.EngineConfig, engine: Engine, index: int, tokens: str, length: int
) -> tuple[int, ...]:
    """The table entries of a hit of `length` tokens: null where no block is needed."""
    group = cfg.groups[index]
    needed = group_needs.blocks_needed(group, length)
    return tuple(
        block_at(cfg, engine, index, tokens, length, p) if p in needed else NULL
        for p in range(int(counts.blocks_for_tokens(length, group.block_size)))
    )


def padded(
    cfg: config.EngineConfig, group: config.Group, table: Table, end: int, fresh: bool = False
) -> Table:
    """The table with null placeholders up to the running state, in align mode. Scratch blocks for
    drafts in front of the running state move behind it."""
    if not group.aligned:
        return table
    running = int(counts.blocks_for_tokens(end, group.block_size)) - 1
    first_scratch = len(table) if fresh else len(table) - cfg.drafts
    left = max(first_scratch, min(running, len(table)))
    kept = (*table[:first_scratch], *([NULL] * (left - first_scratch)), *table[left:])
    return (*kept, *([NULL] * (running - len(table))), *table[first_scratch:left])
