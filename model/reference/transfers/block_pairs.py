"""Block pairs: which kernel block of P is copied to which kernel block of D, for each group.

Sources: `NixlBaseConnectorScheduler.get_exchange_clipped_blocks` and the worker's
`_apply_prefix_caching`.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import is_reverse, sides
from kvproof.model.state import NULL, Engine, Lists, Request, Transfer

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def offered_lists(cfg: config.EngineConfig, request: Request) -> Lists:
    """The block lists that P offers: for full attention the blocks of the computed tokens, for a
    window only the last of these, for a Mamba group the block with the state."""
    lists = []
    for index, group in enumerate(cfg.groups):
        table = request.tables[index] if request.tables else ()
        if group.kind == "mamba":
            lists.append(_state_slots(without_scratch(cfg, table)))
            continue
        table = table[: int(counts.attention_blocks_offered(request.computed, group.block_size))]
        if group.kind == "window":
            table = table[-int(counts.window_blocks_offered(group.window, group.block_size)) :]
        lists.append(table)
    return tuple(lists)


def without_scratch(cfg: config.EngineConfig, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """The block list of a Mamba group without its last blocks, which are for the states of
    drafts."""
    return blocks[: max(len(blocks) - cfg.drafts, 1)]


def _state_slots(blocks: tuple[int, ...]) -> tuple[int, ...]:
    return blocks[len(blocks) - int(counts.state_slots_moved(len(blocks))) :]


def _kernel(blocks: tuple[int, ...], ratio: int) -> tuple[int, ...]:
    return tuple(block * ratio + part for block in blocks for part in range(ratio))


def fresh_lists(cfg: config.EngineConfig, engine: Engine, request: Request) -> Lists:
    """The blocks that a load will fill. A request without a load has none."""
    lists: list[tuple[int, ...]] = []
    for index, group in enumerate(cfg.groups):
        table = request.tables[index] if request.external else ()
        fresh = tuple(b for b in table if b != NULL and engine.blocks[b].key is None)
        if group.kind == "mamba":
            fresh = _state_slots(without_scratch(cfg, fresh))
        if group.kind == "window":
            fresh = fresh[-int(counts.window_blocks_offered(group.window, group.block_size)) :]
        lists.append(fresh)
    return tuple(lists)


def cut_held_list(first: int, held: tuple[int, ...], end: int) -> tuple[int, tuple[int, ...]]:
    """D's kept kernel blocks from position `first`, cut at position `end`, where P's list ends,
    because D may have computed more tokens. Returns the position of the first kernel block, and the
    list.
    """
    return first, held[: max(end - first, 0)]


def paired(cluster: config.Cluster, request: Request, transfer: Transfer) -> Transfer:
    """The transfer with D's fresh blocks (`local`) paired with P's, kernel block by kernel block.
    Where D has no block to fill, both lists of a Mamba group are empty. In a reverse transfer the
    roles are exchanged: P is `d` here and D is `p`."""
    p, _, d, _ = sides(cluster, transfer.request)
    pairs: list[Pair] = []
    for index, group in enumerate(d.groups):
        table, fresh = request.tables[index], transfer.local[index]
        remote = transfer.remote[index]
        if group.kind == "mamba":
            pairs.append((fresh, _state_slots(remote) if fresh else ()))
            continue
        ours = _kernel(fresh, d.physical_per_logical)
        theirs = _kernel(remote, p.physical_per_logical)
        block_size = p.groups[index].block_size
        remote_blocks = int(counts.attention_blocks_offered(transfer.tokens, block_size))
        first = (remote_blocks - len(remote)) * p.physical_per_logical
        if is_reverse(transfer.request):
            end = len(table) * d.physical_per_logical
            first, theirs = cut_held_list(first, theirs, end)
        a, b, c, e = counts.trim(
            (len(table) - len(fresh)) * d.physical_per_logical,
            len(ours),
            first,
            len(theirs),
            d.physical_per_logical == p.physical_per_logical,
        )
        pairs.append((ours[a:b], theirs[c:e]))
    return transfer._replace(pairs=tuple(pairs))
