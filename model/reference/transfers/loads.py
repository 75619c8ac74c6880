"""A receiver starts a load, or declines it, and which kernel block of P is copied to which kernel
block of D.

Sources: `NixlPullConnectorScheduler.update_state_after_alloc`,
`NixlBaseConnectorScheduler.get_exchange_clipped_blocks` and the worker's `_apply_prefix_caching`.
"""

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config.sides import giver, is_reverse, taker
from kvproof.model.environment import pulls
from kvproof.model.errors import NotAllowed
from kvproof.model.phases import Phase
from kvproof.model.reference.transfers.offers import OPEN
from kvproof.model.state import LOADING, NULL, Engine, Lists, Request, State, Transfer

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
    p, d = giver(cluster, transfer.request).engine, taker(cluster, transfer.request).engine
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


def start_load(cluster: config.Cluster, state: State, name: str) -> State:
    """Start to fill the blocks of a transfer's external tokens. With push, the writes start when P
    has finished."""
    sink, taken = taker(cluster, name)
    engine = state.engine(sink.name)
    request = engine.request(taken)._replace(status=LOADING)
    transfer = state.transfer(name)
    if transfer is None:
        raise NotAllowed(f"{taken} loads but nothing is offered")
    if is_reverse(name) and transfer.phase != Phase.OFFERED:
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, pulls.turn_requested(transfer)
        )
    transfer = transfer._replace(local=fresh_lists(sink, engine, request))
    if transfer.phase == Phase.AWAITED:
        return state.with_engine(engine.with_request(request)).with_transfer(
            name, transfer.to(Phase.REGISTERED)
        )
    transfer = paired(cluster, request, transfer.to(Phase.READING))
    return state.with_engine(engine.with_request(request)).with_transfer(name, transfer)


def declined(cluster: config.Cluster, state: State, name: str) -> State:
    """Decline a transfer: the request was admitted without a load, or ended before it. The sender
    is only notified."""
    transfer = state.transfer(name)
    if transfer is not None and transfer.phase == Phase.EXPIRED:
        return state.with_transfer(name, pulls.turn_over(transfer))
    if transfer is None or transfer.phase not in OPEN:
        return state
    if cluster.pushes:
        return state.with_transfer(name, transfer.to(Phase.RELEASING))
    sink, taken = taker(cluster, name)
    engine = state.engine(sink.name)
    request = engine.find(taken)
    if request is not None and request.tables:
        local = fresh_lists(sink, engine, request)
        transfer = paired(cluster, request, transfer._replace(local=local))
    return state.with_transfer(name, transfer.to(Phase.RELEASING))
