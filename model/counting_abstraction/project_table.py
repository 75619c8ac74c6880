"""Computes the counts of block tables from the states of a step (see `table`)."""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction import table
from kvproof.model.counting_abstraction.observed import Move, Observed, move
from kvproof.model.counting_abstraction.table import GONE_TABLE, TableCounts, TableSizes
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
)
from kvproof.model.reference.scheduling import chunks
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
)
from kvproof.model.step import Step

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


def sizes_of(
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
        request.max_tokens,
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


def left_out(cluster: Cluster, cfg: config.EngineConfig) -> Iterator[str]:
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
    return group.aligned and chunks.split_unit(cfg) != group.block_size


class _Reader:
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


def observed(cluster: Cluster, step: Step) -> Iterator[Observed]:
    """How a step changed each table that it concerns, but for the tables that are left out (see
    `left_out` and `splits_elsewhere`)."""
    for cfg, before, after in zip(
        cluster.engines, step.before.engines, step.after.engines, strict=True
    ):
        if before is after or after.dead or not _concerns(step.event, cfg.name):
            continue
        if any(left_out(cluster, cfg)):
            continue
        for name in dict.fromkeys(r.id for r in (*before.requests, *after.requests)):
            old, new = before.find(name), after.find(name)
            reader, request = _Reader(before, old, new), new or old
            concerned = reader.concerned(step.event)
            if request is None or (old == new and not concerned):
                continue
            for index, group in enumerate(cfg.groups):
                if splits_elsewhere(cfg, group):
                    continue
                counts = table_counts(before, old, index), table_counts(after, new, index)
                most = max(counts[0].length, counts[1].length)
                sizes = sizes_of(cluster, cfg, request, group)
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
