"""Who waits for what in a state: for each request that has not ended, what it lacks.

All of it is read off the state: statuses, block tables, the free queue, the phases of transfers.
What a waiting request would need is asked of the scheduler of the reference, which tries this
request alone in this state. Where vLLM itself has refused blocks in its last steps (`refused`), the
numbers are those of its own `KVCacheManager.allocate_slots`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproof.invariants.engines import WAITS
from kvproof.model import termination
from kvproof.model.because import About, Reason, Reasons, reason
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, taker
from kvproof.model.counted import are, counted
from kvproof.model.errors import NoPlace, NoRoom, NoTokens
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


ROOTS = ("blocks", "place", "tokens", "permission", "queue", "progress", "nothing")
"""What a request may lack if the scheduler itself refuses it, so that it waits for no other engine
and no user: blocks, a place among the running requests, tokens of a step, permission of the step, a
queue, lasting progress, or nothing that is observed. The first ones are told first."""

LACKS = (*ROOTS, "turn", "report", "reader", "output", "user")
"""What a request may lack: also its turn, a report that its transfer has ended, the other engine,
the output of a step, or its user."""

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
    """What a request lacks (one of `LACKS`), and the facts in `words`. `held` is the number of
    blocks that it has. `needed` and `free` are numbers of blocks where it lacks blocks. `on` is the
    request that it waits for."""

    engine: str
    request: str
    status: str
    lack: str
    words: str
    held: int
    needed: int = 0
    free: int = 0
    on: Place = ("", "")

    @property
    def sentence(self) -> str:
        """The facts in words: who, and what it waits for."""
        has = f", has {counted(self.held, 'block')}" if self.held else ""
        return f"{self.request} on {self.engine} ({self.status}{has}) {self.words}"

    @property
    def reason(self) -> Reason:
        """The facts as a reason of a finding."""
        facts = self._asdict()
        del facts["words"]
        return reason(WAITS, literal(self.sentence), **facts)


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
    found.sort(key=lambda w: ((w.engine, w.request) not in left, LACKS.index(w.lack)))
    return tuple(found)


def stuck(cluster: Cluster, state: State, context: HangContext) -> tuple[Reasons, About]:
    """Why a run does not end: the reasons of a finding, each of which says what one request lacks,
    and the request that the finding is about, which is the first of them."""
    found = waits(cluster, state, context)
    why = [wait.reason for wait in found[:WAITS_MAX]]
    if len(found) > WAITS_MAX:
        why.append(reason("more_wait", "{more} more requests wait", more=len(found) - WAITS_MAX))
    if not found:
        return (reason("not_finished", "a transfer has not finished"),), About()
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
    first = next((w for w in found if w.lack in ROOTS and w.lack != "nothing"), None)
    for wait in found:
        if wait.lack == "nothing" and first is not None:
            other = first.request
            words = f"may not pass {other}, {_order(engine, wait.request, other)}"
            yield wait._replace(lack="turn", on=(engine.name, other), words=words)
        else:
            yield wait


def _wait(engine: Engine, request: Request, lack: str, words: str, **facts: Any) -> Wait:
    return Wait(engine.name, request.id, request.status, lack, words, _held(request), **facts)


def _held(request: Request) -> int:
    return len({block for table in request.tables for block in table} - {NULL})


def _waiting_outside(
    cluster: Cluster, state: State, engine: Engine, request: Request
) -> Wait | None:
    """What a request lacks that no scheduler step can give it."""
    if request.status == MISQUEUED:
        return _wait(engine, request, "queue", "is in no queue of the scheduler, or in several")
    if request.status == PAUSED:
        words = "waits for the next part of its session, and keeps its blocks"
        return _wait(engine, request, "user", words)
    if request.id in dict(engine.step or ()) or engine.flights(request.id):
        return _wait(engine, request, "output", "waits for the output of a step")
    if request.status == SENDING:
        return _sending(cluster, state, engine, request)
    if request.status in (LOADING, ABORTED):
        transfer = _transfer(cluster, state, engine, request, sends=False)
        why = _copy(transfer)
        sender = giver(cluster, transfer.request) if transfer is not None else None
        if sender and state.engine(sender.engine.name).find(sender.request) is None:
            why += f", and {sender.engine.name} does not have {sender.request}"
        return _awaits_report(engine, request, why)
    return None


def _awaits_report(engine: Engine, request: Request, why: str) -> Wait:
    words = f"waits for the report that its transfer has ended, yet {why}"
    return _wait(engine, request, "report", words)


def _sending(cluster: Cluster, state: State, engine: Engine, request: Request) -> Wait:
    transfer = _transfer(cluster, state, engine, request, sends=True)
    if transfer is not None and transfer.phase not in COPIES:
        other = taker(cluster, transfer.request)
        there = state.engine(other.engine.name).find(other.request)
        if there is not None:
            name = other.engine.name
            words = (
                f"keeps its blocks until {name} has read them; {other.request} on {name} is "
                f"{there.status}"
            )
            return _wait(engine, request, "reader", words, on=(name, other.request))
    return _awaits_report(engine, request, _copy(transfer))


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
    words = "is scheduled each time, and loses its progress again"
    return _wait(engine, request, "progress", words) if request.id in served else None


def _refused_by_machine(
    engine: Engine, request: Request, refused: Sequence[BlockRefusal]
) -> Wait | None:
    for each in refused:
        if (each.engine, each.request) == (engine.name, request.id):
            return _lacks_blocks(engine, request, each.needed, each.free)
    return None


def _refused(
    cluster: Cluster, state: State, engine: Engine, request: Request, context: HangContext
) -> Wait:
    """What a request lacks to be scheduled in this state."""
    if request.status in (LOADED, FAILED):
        return _lacks_nothing(engine, request)
    work = _step(cluster, state, engine, context)
    error = work.refusal(request.id)
    if error is None:
        return _lacks_nothing(engine, request, f" ({', '.join(map(describe, work.chose))})")
    # vLLM may count otherwise, and was not asked here.
    also = "; by the count of the model" if context.live else ""
    if isinstance(error, NoRoom):
        return _lacks_blocks(engine, request, error.needed, error.free, also)
    if isinstance(error, NoPlace):
        return _lacks_a_place(cluster, engine, request, also)
    if isinstance(error, NoTokens):
        words = f"gets 0 tokens in each step, and is never scheduled{also}"
        return _wait(engine, request, "tokens", words)
    return _wait(engine, request, "permission", f"is refused by each step: {error}{also}")


def _step(cluster: Cluster, state: State, engine: Engine, context: HangContext) -> Greedy:
    work = Greedy(cluster, state, engine.name)
    if context.live and work.cfg.reserve_whole_prompt is None:
        work.cfg = replace(work.cfg, reserve_whole_prompt=True)
    return work


def _lacks_blocks(engine: Engine, request: Request, needed: int, free: int, also: str = "") -> Wait:
    pool = len(engine.blocks) - 1
    words = f"needs {counted(needed, 'block')}, and the whole pool has {pool}"
    if needed <= pool:
        words = f"needs {counted(needed, 'block')} and {free} of {pool} {are(free)} free"
        others = ((r.id, _held(r)) for r in engine.requests if r.id != request.id)
        held = [f"{name} has {count}" for name, count in others if count]
        words += f"; {_and(held)}" if held else ""
    return _wait(engine, request, "blocks", words + also, needed=needed, free=free)


def _lacks_a_place(cluster: Cluster, engine: Engine, request: Request, also: str) -> Wait:
    taking = [r.id for r in engine.requests if scheduler_step.takes_a_place(r.status)]
    takes = "takes it" if len(taking) == 1 else "take them"
    most = cluster.engine(engine.name).max_requests
    words = f"waits for a place: max_requests is {most}, and {_and(taking)} {takes}{also}"
    return _wait(engine, request, "place", words)


def _lacks_nothing(engine: Engine, request: Request, chosen: str = "") -> Wait:
    words = (
        f"lacks nothing that is observed: {len(engine.free)} of {len(engine.blocks) - 1} blocks "
        f"are free, and the reference would go on with it{chosen}"
    )
    return _wait(engine, request, "nothing", words)


def _order(engine: Engine, request: str, other: str) -> str:
    names = [r.id for r in engine.requests]
    earlier = names.index(other) < names.index(request)
    return "which arrived before it" if earlier else "which arrived after it"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
