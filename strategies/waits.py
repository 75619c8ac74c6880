"""Who waits for what in a state: for each request that has not ended, what it lacks.

All of it is read off the state: statuses, block tables, the free queue, the phases of transfers.
What a waiting request would need is asked of the scheduler of the reference, which tries this
request alone in this state. Where vLLM itself has refused blocks in its last steps (`refused`), the
numbers are those of its own `KVCacheManager.allocate_slots`.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproof.invariants.engines import WAITS
from kvproof.model import planting, termination
from kvproof.model.because import About, Reason, Reasons, reason
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, taker
from kvproof.model.counted import are, counted
from kvproof.model.errors import NoPlace, NoRoom, NotAllowed, NoTokens
from kvproof.model.events import Compute, Event, Schedule, describe
from kvproof.model.phases import Phase
from kvproof.model.reference.scheduling import scheduler_step
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    MISQUEUED,
    NULL,
    PAUSED,
    SENDING,
    Engine,
    Request,
    State,
    Transfer,
)
from kvproof.model.step import BlockRefusal
from kvproof.model.wording import literal

Place = tuple[str, str]
"""An engine and a request on it."""


WAITS_MAX = 8
"""The number of requests that the reasons of a finding name."""


class Lack(StrEnum):
    """What a request lacks."""

    BLOCKS = "blocks"
    PLACE = "a place among the running requests"
    TOKENS = "tokens of a step"
    RULE = "permission of the step"
    QUEUE = "a queue"
    PROGRESS = "lasting progress"
    NOTHING = "nothing"
    TURN = "its turn"
    REPORT = "a report"
    READER = "the other engine"
    OUTPUT = "the output of a step"
    USER = "its user"


ROOTS = (Lack.BLOCKS, Lack.PLACE, Lack.TOKENS, Lack.RULE, Lack.QUEUE, Lack.PROGRESS, Lack.NOTHING)
"""The lacks for which the scheduler itself refuses a request, so that the request waits for no
other engine and no user."""

DECIDES = {
    Lack.BLOCKS: "KVCacheManager.allocate_slots",
    Lack.REPORT: "Scheduler._update_from_kv_xfer_finished",
    Lack.READER: "Scheduler._update_from_kv_xfer_finished",
    Lack.OUTPUT: "Scheduler.update_from_output",
    Lack.USER: "Scheduler.add_request",
}
"""The function of vLLM that a request waits for; `Scheduler.schedule` for everything else."""

COPIES = {
    Phase.READING: "its blocks are still being copied",
    Phase.RELEASING: "the other engine needs none of its blocks",
    Phase.ABANDONED: "the copy has failed and is not tried again",
    Phase.LOST: "the end of the copy is never reported",
    Phase.REGISTERED: "the sender has not begun to write",
    Phase.OVERDUE: "the lease has ended while the blocks are being copied",
    Phase.EXPIRED: "the lease has ended before the blocks were asked for",
    Phase.REFUSED: "the read was asked for too late and is not started",
    Phase.CLOSED: "the transfer is over",
}
"""How far a transfer is, for a request that waits for its end."""


class Wait(NamedTuple):
    """What a request lacks, and the facts. `held` is the number of blocks that it has. `needed` and
    `free` are numbers of blocks where it lacks blocks. `holders` are the other requests that have
    blocks of this engine, or that take the places, with their number of blocks. `on` is the request
    that it waits for. `why` has further facts as words. `function` is the function of vLLM that
    refuses it or that it waits for."""

    engine: str
    request: str
    status: str
    lack: Lack
    held: int
    needed: int = 0
    free: int = 0
    pool: int = 0
    holders: tuple[tuple[str, int], ...] = ()
    on: Place = ("", "")
    why: str = ""
    function: str = "Scheduler.schedule"

    @property
    def sentence(self) -> str:
        """The facts in words: who, and what it waits for."""
        has = f", has {counted(self.held, 'block')}" if self.held else ""
        return f"{self.request} on {self.engine} ({self.status}{has}) {_SENTENCES[self.lack](self)}"

    @property
    def reason(self) -> Reason:
        """The facts as a reason of a finding."""
        facts = self._asdict()
        del facts["why"]
        return reason(WAITS, literal(self.sentence), **facts)

    @property
    def short(self) -> str:
        """What it waits for in two or three words, for a cell of a table."""
        if self.lack == Lack.BLOCKS:
            return f"needs {self.needed}, {self.free} free"
        if self.lack in (Lack.READER, Lack.TURN):
            return f"for {self.on[1]} on {self.on[0]}"
        return _SHORT[self.lack]

    @property
    def refuses(self) -> str:
        """The function and what it does with the request, in words."""
        does = _REFUSES.get(self.lack, "leaves {} waiting")
        return f"{self.function} {does.format(f'{self.request} on {self.engine}')}"


class HangContext(NamedTuple):
    """Facts beside the state that explain a hang: the events that repeat without end from this
    state on, the requests for which vLLM itself had no blocks in its last steps, and whether the
    machine is a real vLLM (which reserves whole prompts where its options say nothing)."""

    loop: Sequence[Event] = ()
    refused: Sequence[BlockRefusal] = ()
    live: bool = False


def waits(cluster: Cluster, state: State, context: HangContext = HangContext()) -> tuple[Wait, ...]:  # noqa: B008
    """What each request of a state lacks; first those that a scheduler refuses, last those that are
    excused (see `termination.unfinished`)."""
    left = {(engine, r.id) for engine, r in termination.unfinished(state)}
    engines = [engine for engine in state.engines if not engine.dead]
    found = [wait for engine in engines for wait in _of_engine(cluster, state, engine, context)]
    order = [*ROOTS, *(lack for lack in Lack if lack not in ROOTS)]
    found.sort(key=lambda w: ((w.engine, w.request) not in left, order.index(w.lack)))
    return tuple(found)


def stuck(cluster: Cluster, state: State, context: HangContext) -> tuple[Reasons, About]:
    """Why a run does not end: the reasons of a finding, each of which says what one request lacks,
    and the request that the finding is about, which is the first of them."""
    found = waits(cluster, state, context)
    why = [wait.reason for wait in found[:WAITS_MAX]]
    if len(found) > WAITS_MAX:
        why.append(reason("more_wait", "{more} more requests wait", more=len(found) - WAITS_MAX))
    if not found:
        what = literal(termination.waiting(state) or "a transfer")
        left = [(engine, r.id, r.status) for engine, r in termination.unfinished(state)]
        return (reason("not_finished", f"{what} has not finished", waiting=left),), About()
    return tuple(why), About(found[0].engine, found[0].request)


def repeats(states: Sequence[object]) -> int | None:
    """The start of the loop of a run: the number of events before the last state was seen for the
    first time. None where the last state is new."""
    before = range(len(states) - 1)
    return next((number for number in before if states[number] == states[-1]), None)


def _of_engine(
    cluster: Cluster, state: State, engine: Engine, context: HangContext
) -> Iterator[Wait]:
    served = {
        c.request
        for e in context.loop
        if isinstance(e, Schedule) and e.engine == engine.name
        for c in e.chose or ()
        if isinstance(c, Compute)
    }
    found = [
        _waiting_outside(cluster, state, engine, request)
        or _in_loop(engine, request, served)
        or _refused_by_machine(engine, request, context.refused)
        or _refused(cluster, state, engine, request, context)
        for request in engine.requests
    ]
    first = next((w for w in found if w.lack in ROOTS and w.lack != Lack.NOTHING), None)
    for wait in found:
        if wait.lack == Lack.NOTHING and first is not None:
            on = (engine.name, first.request)
            yield wait._replace(lack=Lack.TURN, on=on, why=_order(engine, wait.request, on[1]))
        else:
            yield wait


def _wait(engine: Engine, request: Request, lack: Lack, **facts: Any) -> Wait:
    function = DECIDES.get(lack, "Scheduler.schedule")
    known = {"free": len(engine.free), "pool": len(engine.blocks) - 1, "function": function}
    return Wait(engine.name, request.id, request.status, lack, _held(request), **{**known, **facts})


def _held(request: Request) -> int:
    return len({block for table in request.tables for block in table} - {NULL})


def _holders(engine: Engine, request: Request) -> tuple[tuple[str, int], ...]:
    """The other requests that have blocks, with their numbers."""
    others = ((r.id, _held(r)) for r in engine.requests if r.id != request.id)
    return tuple((name, held) for name, held in others if held)


def _waiting_outside(
    cluster: Cluster, state: State, engine: Engine, request: Request
) -> Wait | None:
    """What a request lacks that no scheduler step can give it."""
    if request.status == MISQUEUED:
        return _wait(engine, request, Lack.QUEUE)
    if request.status == PAUSED:
        return _wait(engine, request, Lack.USER)
    if request.id in dict(engine.step or ()) or engine.flights(request.id):
        return _wait(engine, request, Lack.OUTPUT)
    if request.status == SENDING:
        return _sending(cluster, state, engine, request)
    if request.status in (LOADING, ABORTED):
        transfer = _transfer(cluster, state, engine, request, sends=False)
        why = _copy(transfer)
        sender = giver(cluster, transfer.request) if transfer is not None else None
        if sender and state.engine(sender.engine.name).find(sender.request) is None:
            why += f", and {sender.engine.name} does not have {sender.request}"
        return _wait(engine, request, Lack.REPORT, why=why)
    return None


def _sending(cluster: Cluster, state: State, engine: Engine, request: Request) -> Wait:
    transfer = _transfer(cluster, state, engine, request, sends=True)
    if transfer is not None and transfer.phase not in COPIES:
        other = taker(cluster, transfer.request)
        there = state.engine(other.engine.name).find(other.request)
        if there is not None:
            on, why = (other.engine.name, other.request), there.status
            return _wait(engine, request, Lack.READER, on=on, why=why)
    return _wait(engine, request, Lack.REPORT, why=_copy(transfer))


def _transfer(
    cluster: Cluster, state: State, engine: Engine, request: Request, *, sends: bool
) -> Transfer | None:
    """The transfer that a request sends or receives in."""
    side = giver if sends else taker
    for transfer in state.transfers if cluster.disaggregated else ():
        at = side(cluster, transfer.request)
        if (at.engine.name, at.request) == (engine.name, request.id):
            return transfer
    return None


def _copy(transfer: Transfer | None) -> str:
    if transfer is None:
        return "no transfer of it is left"
    return COPIES.get(transfer.phase, "the other engine does not have the request")


def _in_loop(engine: Engine, request: Request, served: set[str]) -> Wait | None:
    """The wait of a request that is scheduled in each round of the loop and does not end."""
    return _wait(engine, request, Lack.PROGRESS) if request.id in served else None


def _refused_by_machine(
    engine: Engine, request: Request, refused: Sequence[BlockRefusal]
) -> Wait | None:
    for each in refused:
        if (each.engine, each.request) == (engine.name, request.id):
            needs = {"needed": each.needed, "free": each.free}
            return _wait(engine, request, Lack.BLOCKS, holders=_holders(engine, request), **needs)
    return None


def _refused(
    cluster: Cluster, state: State, engine: Engine, request: Request, context: HangContext
) -> Wait:
    """What a request lacks to be scheduled in this state."""
    if request.status in (LOADED, FAILED):
        return _wait(engine, request, Lack.NOTHING)
    work = _step(cluster, state, engine, context)
    error = work.refusal(request.id)
    if error is None:
        chosen = ", ".join(map(describe, work.chose))
        return _wait(engine, request, Lack.NOTHING, why=chosen)
    with planting.set_aside():
        faulty = _step(cluster, state, engine, context).refusal(request.id) is None
    why = "without the fault it would be scheduled" if faulty else ""
    if context.live:  # vLLM may count otherwise, and was not asked here
        why = "by the count of the model"
    return _as_wait(cluster, engine, request, error, why)


def _step(cluster: Cluster, state: State, engine: Engine, context: HangContext) -> Greedy:
    work = Greedy(cluster, state, engine.name)
    if context.live and work.cfg.reserve_whole_prompt is None:
        work.cfg = replace(work.cfg, reserve_whole_prompt=True)
    return work


def _as_wait(
    cluster: Cluster, engine: Engine, request: Request, error: NotAllowed, why: str
) -> Wait:
    cfg = cluster.engine(engine.name)
    if isinstance(error, NoRoom):
        needs = {"needed": error.needed, "free": error.free}
        holders = _holders(engine, request)
        return _wait(engine, request, Lack.BLOCKS, why=why, holders=holders, **needs)
    if isinstance(error, NoPlace):
        taking = [r for r in engine.requests if scheduler_step.takes_a_place(r.status)]
        holders = tuple((r.id, _held(r)) for r in taking)
        return _wait(engine, request, Lack.PLACE, needed=cfg.max_requests, holders=holders, why=why)
    if isinstance(error, NoTokens):
        split = "Scheduler._mamba_block_aligned_split"
        function = split if cfg.aligned_group else "Scheduler.schedule"
        return _wait(engine, request, Lack.TOKENS, why=why, function=function)
    why_not = f"{error}; {why}" if why else str(error)
    return _wait(engine, request, Lack.RULE, why=why_not)


def _order(engine: Engine, request: str, other: str) -> str:
    names = [r.id for r in engine.requests]
    earlier = names.index(other) < names.index(request)
    return "which arrived before it" if earlier else "which arrived after it"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _also(wait: Wait) -> str:
    return f"; {wait.why}" if wait.why else ""


def _no_blocks(wait: Wait) -> str:
    free = f"{wait.free} of {wait.pool} {are(wait.free)} free"
    if wait.needed > wait.pool:
        text = f"needs {counted(wait.needed, 'block')}, and the whole pool has {wait.pool}"
    else:
        text = f"needs {counted(wait.needed, 'block')} and {free}"
        held = [f"{name} has {count}" for name, count in wait.holders]
        text += f"; {_and(held)}" if held else ""
    return text + _also(wait)


def _no_place(wait: Wait) -> str:
    takes = "takes it" if len(wait.holders) == 1 else "take them"
    taken = f"{_and([name for name, _ in wait.holders])} {takes}"
    return f"waits for a place: max_requests is {wait.needed}, and {taken}{_also(wait)}"


def _no_reader(wait: Wait) -> str:
    engine, request = wait.on
    return f"keeps its blocks until {engine} has read them; {request} on {engine} is {wait.why}"


_SENTENCES: dict[Lack, Callable[[Wait], str]] = {
    Lack.BLOCKS: _no_blocks,
    Lack.PLACE: _no_place,
    Lack.TOKENS: lambda w: f"gets 0 tokens in each step, and is never scheduled{_also(w)}",
    Lack.RULE: lambda w: f"is refused by each step: {w.why}",
    Lack.QUEUE: lambda _: "is in no queue of the scheduler, or in several",
    Lack.PROGRESS: lambda _: "is scheduled each time, and loses its progress again",
    Lack.NOTHING: lambda w: (
        f"lacks nothing that is observed: {w.free} of {w.pool} blocks are free, and the "
        f"reference would go on with it{w.why and f' ({w.why})'}"
    ),
    Lack.TURN: lambda w: f"may not pass {w.on[1]}, {w.why}",
    Lack.REPORT: lambda w: f"waits for the report that its transfer has ended, yet {w.why}",
    Lack.READER: _no_reader,
    Lack.OUTPUT: lambda _: "waits for the output of a step",
    Lack.USER: lambda _: "waits for the next part of its session, and keeps its blocks",
}

_SHORT = {
    Lack.PLACE: "no place",
    Lack.TOKENS: "gets 0 tokens",
    Lack.RULE: "not allowed",
    Lack.QUEUE: "in no queue",
    Lack.PROGRESS: "no progress",
    Lack.NOTHING: "left waiting",
    Lack.REPORT: "no report",
    Lack.OUTPUT: "output due",
    Lack.USER: "user's turn",
}

_REFUSES = {
    Lack.BLOCKS: "gives {} no blocks",
    Lack.PLACE: "finds no place for {}",
    Lack.TOKENS: "gives {} 0 tokens",
    Lack.QUEUE: "does not find {}",
    Lack.PROGRESS: "serves {} in vain",
    Lack.REPORT: "is not called for {}",
    Lack.READER: "is not called for {}",
}
"""What the function does with a request, in words; it leaves the request waiting where the table
has no entry."""
