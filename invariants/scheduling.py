"""What must be true of the steps of a scheduler, and of the requests that wait for them."""

from collections.abc import Iterator

from kvproof.invariants.changes import Scheduled
from kvproof.invariants.check import check
from kvproof.invariants.room import READY, has_pending_output
from kvproof.model.because import (
    Excuse,
    Judged,
    Reason,
    because,
    choice,
    holds,
    holds_if,
    reason,
    release,
)
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Compute, FinishLoad, Preempt, Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    MISQUEUED,
    PAUSED,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Engine,
    Request,
)
from kvproof.model.step import Step


def _why_it_keeps_blocks(cluster: Cluster, request: Request) -> Iterator[Excuse]:
    """The reasons for which a request that waits may keep blocks."""
    if request.external > 0:
        yield choice("it has loaded tokens into them")
    if cluster.job(request.id).parts:
        yield choice("it is a session, and they hold its earlier parts")


def _misplaced(cluster: Cluster, engine: Engine, request: Request) -> Iterator[Judged]:
    """What is wrong with the queues or the blocks of a request."""
    times = engine.running.count(request.id)
    if times != (request.status == RUNNING):
        yield because(
            reason("has_status", "{request} is {status} on {engine}", status=request.status),
            reason("times_in_running", "the running queue has it {times} times", times=times),
            engine=engine.name,
            request=request.id,
        )
    if request.status == MISQUEUED:
        yield because(
            reason("unfinished", "{request} is unfinished on {engine}"),
            reason("in_no_queue", "it is in no queue, or in several"),
            engine=engine.name,
            request=request.id,
        )
    if request.status in (WAITING, PREEMPTED) and request.tables:
        yield because(
            reason("waits", "{request} on {engine} is {status}", status=request.status),
            reason("keeps_blocks", "it keeps blocks"),
            excuses=_why_it_keeps_blocks(cluster, request),
            engine=engine.name,
            request=request.id,
        )


@check(
    "every unfinished request is in exactly one queue, and waits with blocks only for a reason",
    origin="vllm-ascend#10545",
    severity=Severity.HANG,
    needs=(Need.QUEUES,),
)
def every_request_in_one_queue(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """A scheduler with additional queues put requests into a queue that no step looked at, and they
    waited for ever (vllm-ascend#10545). A request in two queues is scheduled twice, or freed while
    it runs. A waiting request that keeps blocks without need takes them from requests that could
    run.

    A running request is in the running queue once, and no other request is in it. A waiting request
    that holds blocks is excused where it has loaded tokens, or is a session.
    """
    for request in engine.requests:
        wrong = tuple(_misplaced(cluster, engine, request))
        yield from wrong or (holds(),)
    for name in engine.running:
        if engine.find(name) is None:
            yield because(
                reason("in_running_queue", "{request} is in the running queue of {engine}"),
                reason("not_on_the_engine", "the engine does not have this request"),
                engine=engine.name,
                request=name,
            )


COULD_SCHEDULE = "could_schedule"
"""The kind of reason that names the requests that a step could schedule."""


@check(
    "if nothing is in flight and a request waits, a step schedules or rejects a request",
    origin="vllm#39734",
    severity=Severity.HANG,
    needs=(Need.EMPTY_STEPS,),
)
def step_makes_progress(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A request that could never fit stood at the head of the waiting queue. No request ran, and
    this request and all requests behind it waited for ever (vllm#39734). Nothing fails; every step
    schedules nothing.

    A step is excused where a transfer is under way or a session waits for its user, because their
    end may give the blocks that a request lacks. On P and D `every_request_can_finish` judges the
    whole run.
    """
    event = step.event
    if not isinstance(event, Schedule):
        return
    if not all(isinstance(choice, Release) for choice in event.chose or ()):
        yield holds()
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    waiting = [r for r in before.requests if after.find(r.id)]
    in_flight = before.step is not None or before.steps
    if waiting and not in_flight and not after.dead:
        counted = [
            reason(
                "vllm_counts",
                "vLLM counts {needed} needed and {free} free blocks for {refused}",
                needed=r.needed,
                free=r.free,
                refused=r.request,
            )
            for r in step.effects.refused
        ]
        yield because(
            reason(
                COULD_SCHEDULE,
                "no step of {engine} and no transfer is in flight, {free} of {pool} blocks are "
                "free, and the step could schedule or reject {requests:names} ({statuses:names})",
                free=len(before.free),
                pool=len(before.blocks) - 1,
                requests=[r.id for r in waiting],
                statuses=[r.status for r in waiting],
            ),
            *counted,
            reason("does_neither", "the step does neither"),
            excuses=_what_else_could_help(cluster, step, before),
            engine=event.engine,
        )


def _what_else_could_help(cluster: Cluster, step: Step, engine: Engine) -> Iterator[Excuse]:
    """What else than a step could start a request that waits."""
    statuses = {request.status for request in engine.requests}
    if statuses & {LOADING, LOADED, FAILED, SENDING, ABORTED}:
        yield choice("a transfer keeps blocks, and its end gives them back or starts a request")
    if PAUSED in statuses:
        yield choice("a session waits for its user, and its end gives its blocks back")
    if MISQUEUED in statuses:
        yield release("a request is in no queue, or in several")
    if cluster.engine(engine.name).connected:
        if any(transfer.phase not in _OVER for transfer in step.before.transfers):
            yield choice("the other engine has a part of a transfer to do")
        else:
            yield release("no transfer is under way, and P or D does nothing")


_OVER = (Phase.NONE, Phase.ABANDONED, Phase.EXPIRED, Phase.CLOSED)
"""Phases of a transfer in which neither engine will do anything for it."""


def _of_sessions(cluster: Cluster, one: str, other: str) -> Iterator[Excuse]:
    """The excuse of two jobs of equal priority, if one of them is a session."""
    a, b = cluster.job(one), cluster.job(other)
    if one != other and a.priority == b.priority and (a.parts or b.parts):
        yield choice("each part of a session arrives anew, so its place among equals is free")


def _of_blocks(one: bool | None, other: bool | None) -> Iterator[Excuse]:
    """The excuses of two requests that wait, by whether each of them holds blocks; None says that
    its load has failed."""
    if one is not other and None in (one, other):
        yield choice("a load has failed, and its blocks may be given back at any point of the step")
    elif one is not other:
        yield choice("requests that hold blocks wait in a queue of their own")


def _compared(rank: dict[str, tuple[int, int]], one: str, other: str) -> Reason:
    """The values by which two requests are compared: their priorities or, if these are equal, the
    order of their arrival."""
    ours, theirs = rank[one], rank[other]
    if ours[0] != theirs[0]:
        return reason("unequal", "{ours}, not {theirs}", ours=ours[0], theirs=theirs[0])
    if ours < theirs:
        return reason("came_first", "{ours} too, and came first", ours=ours[0])
    return reason("came_later", "{ours} too, and came later", ours=ours[0])


@check(
    "the job with the lowest priority number is admitted first and preempted last",
    origin="vllm#19057",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.PRIORITIES,),
)
def priority_is_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """With priority scheduling, the priority number of a job decides which request is admitted
    first and which is preempted last (vllm#19057). If a scheduler loses this order, an urgent
    request waits behind others, or loses its blocks to a request that could wait.

    A preempted request is the last in priority of the running requests, and an admitted request is
    the first of those that wait. Requests that hold blocks may be admitted before the others, and a
    request whose load failed may give its blocks back at any point of the step. The place of a
    session among requests of equal priority is free, because each of its parts arrives anew. A
    request with output pending from before its preemption cannot be admitted.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).by_priority:
        return
    engine = step.before.engine(event.engine)
    rank = {r.id: (cluster.job(r.id).priority, n) for n, r in enumerate(engine.requests)}
    has_blocks = {r.id: None if r.status == FAILED else bool(r.tables) for r in engine.requests}
    ready = (r.id for r in engine.requests if r.status in READY)
    waiting = [name for name in ready if not has_pending_output(engine, name)]
    running = list(engine.running)
    for made in event.chose or ():
        name = made.request
        if isinstance(made, Preempt):
            # If no request runs, a waiting session is preempted for another session.
            holders = [r for r in waiting if has_blocks[r] and r != made.needy]
            last = max(running or holders, key=rank.__getitem__)
            yield holds_if(name == last) or because(
                reason("preempted", "{request} is preempted"),
                reason(
                    "runs_priority",
                    "{last} runs and has priority {compared}",
                    last=last,
                    compared=_compared(rank, last, name),
                ),
                excuses=_of_sessions(cluster, name, last),
                engine=engine.name,
                request=name,
            )
            has_blocks[name] = False
            running = [r for r in running if r != name]
        elif name in waiting and not isinstance(made, (FinishLoad, Release)):
            alike = (r for r in waiting if has_blocks[r] == has_blocks[name])
            first = min(alike, key=rank.__getitem__)
            excuses = [*_of_sessions(cluster, name, first)]
            if excuses or name == first:
                first = min(waiting, key=rank.__getitem__)
                excuses += _of_blocks(has_blocks[name], has_blocks[first])
            yield holds_if(name == first) or because(
                reason("admitted", "{request} is admitted"),
                reason(
                    "waits_priority",
                    "{first} waits and has priority {compared}",
                    first=first,
                    compared=_compared(rank, first, name),
                ),
                excuses=excuses,
                engine=engine.name,
                request=name,
            )
            waiting.remove(name)
        if isinstance(made, Compute) and name not in running:
            running.append(name)


def _admitted(before: Engine, event: Schedule) -> dict[str, bool]:
    """The requests that take their first blocks, or run on after a load, and for each whether
    another one ran then."""
    running, admitted = list(before.running), dict[str, bool]()
    for made in event.chose or ():
        name = made.request
        if not isinstance(made, Admit | Compute) or name in running:
            continue
        admitted[name] = bool(running)
        if isinstance(made, Compute):
            running.append(name)
    return admitted


@check(
    "an admission beside running requests leaves the blocks of the watermark free",
    origin="vllm#44594",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.WATERMARK,),
)
def watermark_is_kept(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """With a watermark, an admission beside running requests leaves blocks free, so that these
    requests can grow (vllm#44594). If an admission takes these blocks, the requests that run
    preempt each other soon.

    The first request of an idle engine may take all blocks. A step in which a prediction is wrong
    is excused: `predicted_is_taken` reports that.
    """
    after, kept = made.after, cluster.engine(made.after.name).watermark_blocks
    admitted = _admitted(made.before, made.event) if kept else {}
    if not admitted:
        return
    yield holds_if(len(after.free) >= kept) or because(
        reason("leaves_free", "an admission on {engine} leaves {kept} blocks free", kept=kept),
        reason(
            "admitted",
            "{requests:names} is admitted, and {free} blocks are free",
            requests=admitted,
            free=len(after.free),
        ),
        excuses=_why_below_watermark(made.step, admitted),
        engine=after.name,
        request=next(reversed(admitted)),
    )


def _why_below_watermark(step: Step, admitted: dict[str, bool]) -> Iterator[Excuse]:
    if not any(admitted.values()):
        yield choice("nothing else ran when it was admitted, so nobody needs the watermark")
    if any(a.predicted != a.taken for a in step.effects.allocations):
        yield release("a request took another number of blocks than was predicted")


@check(
    "the worker keeps a place for each request in the batch and for no other",
    origin="vllm#46974",
    severity=Severity.CRASH,
    needs=(Need.PLACES,),
)
def worker_forgets_who_left(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """The worker has `max_num_seqs` places for requests. A paused session keeps its place although
    it does not run, and the scheduler did not count it. It also did not report to the worker which
    requests a reset had preempted. The worker had more requests than places and failed
    (vllm#46974).

    After a step, the worker has no more requests than places. Each of them is unfinished and holds
    blocks: a preempted request, which starts over, has left.
    """
    engine, places = made.after, made.step.effects.places or ()
    most = cluster.engine(engine.name).max_requests
    if len(places) > most:
        yield because(
            reason(
                "has_places", "the worker of {engine} has places for {most} requests", most=most
            ),
            reason("keeps", "it keeps {places:names}", places=places),
            engine=engine.name,
        )
    for name in places:
        request = engine.find(name)
        runs = request and request.tables and request.status not in (SENDING, ABORTED)
        yield holds_if(runs) or because(
            reason(
                "left_batch",
                "{request} {status} on {engine} and has left the batch",
                status="has ended" if request is None else f"is {request.status}",
            ),
            reason("keeps_place", "the worker has no report of this, and keeps a place for it"),
            engine=engine.name,
            request=name,
        )
