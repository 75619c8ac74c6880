"""Cache groups: the blocks that each kind needs for a hit and for new tokens, and those that it may
free.

Each function handles the three kinds: full attention, sliding window, Mamba.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.state import Table

STATE_WINDOW = 2
"""The window in tokens for which a window group frees and needs the same blocks as a Mamba
group."""


def skipped_tokens(group: config.Group, computed: int) -> int:
    """The number of leading tokens whose blocks the group no longer needs after `computed`
    tokens."""
    if group.kind == "window":
        return int(counts.tokens_skipped_by_window(computed, group.window))
    if group.kind == "mamba":
        return int(counts.tokens_skipped_by_state(computed))
    return 0


def skipped_blocks(group: config.Group, computed: int) -> int:
    """The number of leading blocks that the group no longer needs after `computed` tokens."""
    return int(counts.full_blocks(skipped_tokens(group, computed), group.block_size))


def blocks_needed(group: config.Group, length: int) -> range:
    """Positions of the blocks that must be resident for a hit of `length` tokens."""
    end = int(counts.blocks_for_tokens(length, group.block_size))
    if group.kind == "full":
        return range(end)
    if group.kind == "window":
        need = counts.window_blocks_for_hit(group.window, group.block_size)
        return range(max(end - need, 0), end)
    return range(end - 1, end) if end else range(0)


def grown(
    cfg: config.EngineConfig,
    group: config.Group,
    table: Table,
    end: int,
    ahead: int,
    *,
    fresh: bool = False,
) -> int:
    """The number of new blocks that the table takes to reach `end` tokens, and in attention groups
    `ahead` more slots that a drafter may write to. A `fresh` table has only hit blocks."""
    size, held = group.block_size, len(table)
    if group.aligned:
        scratch = cfg.drafts
        return int(counts.state_blocks_predicted(end, size, held, scratch, scratch * fresh))
    slots = end + ahead + slots_for_states(cfg, group)
    return int(counts.attention_blocks_predicted(slots, size, held, 0))


def slots_for_states(cfg: config.EngineConfig, group: config.Group) -> int:
    """The number of further tokens for which a Mamba group of mode none must have blocks: one block
    for the state after each draft (`MambaManager.allocate_new_blocks`)."""
    return 0 if group.attention else cfg.drafts * group.block_size
