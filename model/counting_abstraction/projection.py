"""Computes the counts of block pools, block tables and KV transfers from the states of a step (see
`pool`, `table` and `transfer`), and the actions that lead from the counts before to those after."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction import table
from kvproof.model.counting_abstraction import transfer as counted
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes
from kvproof.model.counting_abstraction.table import GONE_TABLE, TableCounts, TableSizes
from kvproof.model.counting_abstraction.transfer import NO_TRANSFER, TransferSizes
from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Compute,
    Event,
    FinishLoad,
    LeaseExpire,
    Preempt,
    Release,
    ResetRunning,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
)
from kvproof.model.phases import NUMBERS, Phase
from kvproof.model.reference.scheduling import computing
from kvproof.model.reference.transfers import offers
from kvproof.model.reference.transfers.offers import kinds
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    NULL,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Engine,
    Request,
    State,
    Transfer,
)
from kvproof.model.step import Step


class Move(NamedTuple):
    """One action of a step, and the possible values of each of its choices, by name."""

    action: str
    choices: tuple[tuple[str, tuple[int, ...]], ...] = ()


def move(action: str, **choices: tuple[int, ...]) -> Move:
    """Make a move with these choices."""
    return Move(action, tuple(choices.items()))


class Observed(NamedTuple):
    """One part of a state: its system, the sizes that the cluster fixes, the counts before the
    step, the actions of the step in order, and the counts after it."""

    about: str
    system: str
    sizes: Any
    before: Any
    moves: tuple[Move, ...]
    after: Any


def pool_counts(engine: Engine) -> Pool:
    """The counts of an engine's pool."""
    held = sum(1 for number, block in enumerate(engine.blocks) if number != NULL and block.refs)
    return Pool(len(engine.free), held)


def of_pools(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each pool. A block that leaves the queue and returns to it within the step
    is not visible."""
    for before, after in step.touched:
        if after.dead or before.blocks == after.blocks:
            continue
        pairs = list(zip(before.blocks, after.blocks, strict=True))[1:]
        taken = sum(1 for old, new in pairs if not old.refs and new.refs)
        freed = sum(1 for old, new in pairs if old.refs and not new.refs)
        yield Observed(
            f"the pool of {after.name}",
            "pool",
            PoolSizes(cluster.engine(after.name).num_blocks),
            pool_counts(before),
            (move("move", taken=(taken,), freed=(freed,)),),
            pool_counts(after),
        )


STATUS = {
    WAITING: table.WAITING,
    RUNNING: table.RUNNING,
    PREEMPTED: table.PREEMPTED,
    LOADING: table.LOADING,
    LOADED: table.LOADED,
    FAILED: table.FAILED,
    SENDING: table.SENDING,
    ABORTED: table.ABORTED,
}

ENDS: dict[tuple[type, str], str] = {
    (TransferDone, LOADING): "loaded",
    (TransferDone, ABORTED): "leave",
    (TransferDone, SENDING): "leave",
    (TransferFail, LOADING): "failed",
    (TransferFail, ABORTED): "leave",
    (LeaseExpire, SENDING): "leave",
}
"""The action for a request with a status when its transfer ends."""


def table_sizes(
    cluster: Cluster, cfg: config.EngineConfig, request: Request, group: config.Group
) -> TableSizes:
    """The sizes a cluster fixes for a request in one group of an engine."""
    cached = group.kind != "mamba" or group.aligned
    sends = cfg.role == "prefill"
    return TableSizes(
        group.block_size,
        cfg.hit_unit // group.block_size if cached else 1,
        group.window,
        offers.backoff_on_prefill(kinds(cfg), request.embeds)
        if sends
        else offers.backoff_on_decode(kinds(cfg)),
        cfg.chunk_tokens,
        cfg.split_tokens,
        request.answer_tokens,
        int(cfg.prefix_caching),
        int(cfg.connected),
        int(sends),
        int(cluster.load_failure == "recompute"),
    )


def table_counts(engine: Engine, request: Request | None, index: int) -> TableCounts:
    """The counts of one request's table."""
    if request is None:
        return GONE_TABLE
    entries = request.tables[index] if request.tables else ()
    return TableCounts(
        STATUS[request.status],
        request.submitted_prompt_tokens,
        len(request.prompt),
        len(request.output),
        request.computed,
        request.hit,
        request.external,
        request.shared_prefix_boundary,
        len(entries),
        entries.count(NULL),
        sum(1 for b in entries if b != NULL and engine.blocks[b].key is not None),
        request.num_cached_blocks[index] if request.num_cached_blocks else 0,
    )


def tables_left_out(cluster: Cluster, cfg: config.EngineConfig) -> Iterator[str]:
    """Why the block tables of an engine are not projected; nothing where they are.

    Where an engine loads from a store, a load ends in the same step, and the system models a load
    as a wait. Where steps overlap, the computed tokens may be ahead of the known tokens, which the
    claims are about. Drafts may be rejected after they were computed. With hits inside a block, a
    table may have a copy. A part of a session begins with a table that is not empty."""
    if cfg.store:
        yield "a store"
    if cfg.overlaps:
        yield "overlapping steps"
    if cfg.drafts:
        yield "drafts"
    if cfg.partial_block_hits:
        yield "hits inside a block"
    if cluster.sessions:
        yield "sessions"


def splits_elsewhere(cfg: config.EngineConfig, group: config.Group) -> bool:
    """Whether the chunks of a Mamba group end at other multiples than of its blocks, as vLLM 0.32.0
    splits them beside smaller blocks. Its table is not projected: the system splits chunks at the
    group's own blocks."""
    return group.aligned and computing.split_unit(cfg) != group.block_size


class _TableReader:
    """Finds the actions of a step for one request of an engine."""

    def __init__(self, engine: Engine, before: Request | None, after: Request | None) -> None:
        self.engine, self.before, self.after = engine, before, after
        known = after or before
        self.name = known.id if known else ""

    def concerned(self, event: Event) -> bool:
        """Whether the event concerns this request."""
        if isinstance(event, Schedule):
            names = {n for c in event.chose or () for n in (c.request, getattr(c, "needy", ""))}
            return self.name in names
        if isinstance(event, Complete):
            return self._sampled()
        if isinstance(event, ResetRunning):
            return self.name in self.engine.running
        return bool(getattr(event, "request", "") == self.name)

    def moves(self, event: Event, sizes: TableSizes, hashed: tuple[int, ...]) -> Iterator[Move]:
        """The actions of the request at this event; `hashed` has the possible numbers of hashed
        entries."""
        status = self.before.status if self.before else ""
        if isinstance(event, Schedule):
            yield from self._scheduled(event, sizes, hashed)
        elif isinstance(event, Complete):
            yield move("sample", hashed=hashed)
        elif isinstance(event, ResetRunning):
            yield move("preempt")
        elif isinstance(event, Submit):
            if self.before is None and self.after is not None:
                yield move("submit", submitted_prompt_tokens=(self.after.submitted_prompt_tokens,))
        elif isinstance(event, Abort):
            yield move("abort")
        elif (type(event), status) in ENDS:
            yield move(ENDS[type(event), status])

    def _sampled(self) -> bool:
        before = self.before
        if before is None or self.name not in dict(self.engine.step or ()):
            return False
        return before.computed >= len(before.tokens)

    def _scheduled(
        self, event: Schedule, sizes: TableSizes, hashed: tuple[int, ...]
    ) -> Iterator[Move]:
        preempted = self.before is not None and self.before.preemptions > 0
        for choice in event.chose or ():
            if isinstance(choice, Preempt):
                if choice.needy == self.name:
                    yield move("release", hashed=hashed)
                if choice.request == self.name:
                    preempted = True
                    yield move("preempt")
            elif choice.request != self.name:
                continue
            elif isinstance(choice, Admit):
                blocks = choice.local_hit // sizes.block_size
                yield move(
                    "admit",
                    blocks=(blocks,),
                    own=tuple(range(blocks, -1, -1)) if choice.external else (blocks,),
                    lacking=tuple(range(blocks + 1)),
                    external=(choice.external,),
                    shared_prefix_boundary=(
                        self.after.shared_prefix_boundary if self.after else 0,
                        0,
                    ),
                    hashed=hashed,
                )
            elif isinstance(choice, FinishLoad):
                yield move("finish_load", preempted=(int(preempted),), hashed=hashed)
            elif isinstance(choice, Release):
                yield move("release", hashed=hashed)
            elif isinstance(choice, Compute):
                yield move("compute", tokens=(choice.tokens,), hashed=hashed)


def _concerns(event: Event, engine: str) -> bool:
    return getattr(event, "engine", engine) == engine


def of_tables(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each table that it concerns, but for the tables that are left out (see
    `left_out` and `splits_elsewhere`)."""
    for cfg, before, after in zip(
        cluster.engines, step.before.engines, step.after.engines, strict=True
    ):
        if before is after or after.dead or not _concerns(step.event, cfg.name):
            continue
        if any(tables_left_out(cluster, cfg)):
            continue
        for name in dict.fromkeys(r.id for r in (*before.requests, *after.requests)):
            old, new = before.find(name), after.find(name)
            reader, request = _TableReader(before, old, new), new or old
            concerned = reader.concerned(step.event)
            if request is None or (old == new and not concerned):
                continue
            for index, group in enumerate(cfg.groups):
                if splits_elsewhere(cfg, group):
                    continue
                counts = table_counts(before, old, index), table_counts(after, new, index)
                most = max(counts[0].length, counts[1].length)
                sizes = table_sizes(cluster, cfg, request, group)
                done = reader.moves(step.event, sizes, tuple(range(most + 1)))
                aligned = group.kind != "mamba" or group.aligned
                yield Observed(
                    f"{name} on {cfg.name}, group {index}",
                    group.kind if aligned else "state",
                    sizes,
                    counts[0],
                    tuple(done) if concerned else (),
                    counts[1],
                )


READER = (Phase.READING, Phase.LOST, Phase.RELEASING)
"""Phases in which D has answered P's offer."""

BY_EVENT: dict[type, str] = {
    TransferDone: "done",
    TransferFail: "fail",
    TransferLost: "lose",
    LeaseExpire: "expire",
}
BY_PHASE = {Phase.OFFERED: "offer", Phase.READING: "load", Phase.RELEASING: "release"}


def transfer_sizes(cluster: Cluster, index: int, embeds: bool) -> TransferSizes:
    """The sizes a cluster fixes for one group."""
    p, d = cluster.prefill, cluster.decode
    group = d.groups[index]
    backoffs = (
        offers.backoff_on_prefill(kinds(p), embeds),
        offers.backoff_on_decode(kinds(d)),
    )
    if not group.attention:
        # The slots of a Mamba list are whole blocks.
        return TransferSizes(1, p.groups[index].block_size, group.block_size, 0, *backoffs)
    ratios = p.physical_per_logical, d.physical_per_logical
    return TransferSizes(d.kernel_tokens(index), *ratios, group.window, *backoffs)


def _first(request: Request | None, index: int, blocks: tuple[int, ...], ratio: int) -> int:
    """The position of the first of these kernel blocks in a request, 0 where there is none."""
    if not blocks or request is None:
        return 0
    logical, part = counts.logical_block(blocks[0], ratio)
    table = request.tables[index]
    return table.index(int(logical)) * ratio + int(part) if logical in table else -1


def transfer_counts(
    cluster: Cluster, state: State, name: str, transfer: Transfer | None, index: int
) -> counted.TransferCounts:
    """The counts of one request's transfer in one group. P may still keep the blocks of a transfer
    that has ended."""
    p, d = cluster.prefill, cluster.decode
    sender, reader = state.engine(p.name).find(name), None
    pinned = int(sender is not None and sender.status == SENDING)
    if transfer is None:
        return NO_TRANSFER._replace(pinned=pinned)
    if transfer.phase in READER:
        reader = state.engine(d.name).find(name)
    ours, theirs = transfer.pairs[index] if transfer.pairs else ((), ())
    attention = d.groups[index].attention
    loads = reader is not None and transfer.phase != Phase.RELEASING
    return counted.TransferCounts(
        NUMBERS[transfer.phase],
        pinned,
        len(cluster.job(name).prompt),
        transfer.tokens,
        reader.hit if reader and loads else 0,
        reader.external if reader and loads else 0,
        len(transfer.remote[index]),
        len(transfer.local[index]) if transfer.local else 0,
        len(ours),
        len(theirs),
        _first(reader, index, ours, d.physical_per_logical) if attention else 0,
        _first(sender, index, theirs, p.physical_per_logical) if attention else 0,
    )


def _transfer_move(
    cluster: Cluster, step: Step, name: str, after: Transfer | None, index: int
) -> Move:
    by_event = BY_EVENT.get(type(step.event))
    if by_event is not None or after is None:
        return move(by_event or "done")
    action = BY_PHASE[after.phase]
    if action == "offer":
        job = cluster.job(name)
        return move(
            action, submitted_prompt_tokens=(len(job.prompt),), max_tokens=(job.max_tokens,)
        )
    reader = step.after.engine(cluster.decode.name).find(name)
    if action == "release":
        table = reader.tables[index] if reader and reader.tables else ()
        return move(action, admitted=(int(bool(after.pairs)),), length=(len(table),))
    hit = reader.hit if reader else 0
    own = tuple(range(hit, -1, -cluster.decode.groups[index].block_size))
    external = reader.external if reader else 0
    return move(action, hit=(hit,), own=own, external=(external,))


def of_transfers(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each transfer whose record it changed, or whose blocks P freed."""
    if not cluster.disaggregated or any(engine.dead for _, engine in step.touched):
        return
    expiring = [step.event.request] if isinstance(step.event, LeaseExpire) else []
    for name in dict.fromkeys((*step.changed_transfers, *expiring)):
        old, new = step.before.transfer(name), step.after.transfer(name)
        for index, group in enumerate(cluster.decode.groups):
            yield Observed(
                f"the transfer of {name}, group {index}",
                f"transfer of {group.kind}",
                transfer_sizes(cluster, index, cluster.job(name).embeds),
                transfer_counts(cluster, step.before, name, old, index),
                (_transfer_move(cluster, step, name, new, index),),
                transfer_counts(cluster, step.after, name, new, index),
            )
