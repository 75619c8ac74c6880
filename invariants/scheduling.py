"""What must be true of the steps of a scheduler, and of the requests that wait for them."""

from collections.abc import Iterable, Iterator

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.check import check
from kvproof.model.because import Judged, Reason, because, holds, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Preempt, Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LATE,
    LOADED,
    MISQUEUED,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Engine,
    Request,
)
from kvproof.model.step import Step


def _keeps_blocks(cluster: Cluster, request: Request) -> bool:
    """Whether the request keeps blocks for a reason: for loaded tokens, or for the earlier parts of
    a session."""
    return request.external > 0 or bool(cluster.job(request.id).parts)


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
    if (
        request.status in (WAITING, PREEMPTED)
        and request.tables
        and not _keeps_blocks(cluster, request)
    ):
        yield because(
            reason(
                "loaded_nothing",
                "{request} on {engine} is {status} and has loaded nothing",
                status=request.status,
            ),
            reason("keeps_blocks", "it keeps blocks"),
            engine=engine.name,
            request=request.id,
        )


@check(
    "every unfinished request is in exactly one queue, and waits with blocks only for a reason",
    origin="vllm-ascend#10545",
    severity=Severity.HANG,
    killed_by="finished_still_runs",
    needs=(Need.QUEUES,),
)
def every_request_in_one_queue(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """A scheduler with additional queues put requests into a queue that no step looked at, and they
    waited for ever (vllm-ascend#10545). A request in two queues is scheduled twice, or freed while
    it runs. A waiting request that keeps blocks without need takes them from requests that could
    run.

    A running request is in the running queue once, and no other request is in it. A waiting request
    holds blocks only for loaded tokens or as a session.
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
    killed_by="impossible_fit_waits",
    needs=(Need.EMPTY_STEPS,),
)
def step_makes_progress(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A request that could never fit stood at the head of the waiting queue. No request ran, and
    this request and all requests behind it waited for ever (vllm#39734). Nothing fails; every step
    schedules nothing.

    This check judges only engines without KV transfer: there only the scheduler can start a
    waiting request. On P and D, and while a session with blocks waits for its user,
    `every_request_can_finish` judges the whole run.
    """
    event = step.event
    if not isinstance(event, Schedule) or cluster.engine(event.engine).connected:
        return
    if not all(isinstance(choice, Release) for choice in event.chose or ()):
        yield holds()
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    waiting = [r for r in before.requests if after.find(r.id)]
    ready = all(r.status in (WAITING, PREEMPTED, RUNNING) for r in before.requests)
    in_flight = before.step is not None or before.steps
    if waiting and ready and not in_flight and not after.dead:
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
            engine=event.engine,
        )


def _further_blocks(cfg: EngineConfig, request: Request, ahead: int) -> int:
    """Upper bound of the further blocks that a request needs for its tokens and `ahead` more. It
    includes the lookahead slots of a drafter; for a Mamba group, a state, its copy and one state
    for each draft."""
    tokens = len(request.tokens) + ahead + cfg.lookahead + cfg.drafts
    tables = request.tables or ((),) * len(cfg.groups)
    return sum(
        max(blocks_begun(tokens, group.block_size) - len(table), 0)
        if group.attention
        else 2 + cfg.drafts
        for group, table in zip(cfg.groups, tables, strict=True)
    )


def _to_compute(engine: Engine, request: Request) -> int:
    """Tokens of a running request that a step could compute; 0 if its pending output is its last,
    even if all of its drafts are rejected."""
    pending = engine.placeholders(request.id)
    if pending and len(request.output) + 1 >= request.max_tokens:
        return 0
    return len(request.tokens) + pending - request.computed


def _may_be_done(engine: Engine, request: Request) -> bool:
    """Whether the pending output of a request may have its last token. A step may serve it then,
    and may leave it out."""
    return len(request.output) + engine.placeholders(request.id) >= request.max_tokens


def _admissible(cluster: Cluster, cfg: EngineConfig, engine: Engine) -> list[Request]:
    """The waiting requests that need only room to be admitted."""
    plain = all(group.attention for group in cfg.groups) and not cfg.has_connector
    if not plain or cluster.sessions:
        return []
    return [
        r
        for r in engine.requests
        if r.status in (WAITING, PREEMPTED)
        and not any(f.fate == LATE for f in engine.flights(r.id))
    ]


def _ends_early(choices: Iterable[Choice]) -> bool:
    """Whether a request lacked blocks and found no other request to preempt. A step serves no
    further request then."""
    return any(
        isinstance(c, Release) or (isinstance(c, Preempt) and c.request == c.needy) for c in choices
    )


def _runners(cfg: EngineConfig, engine: Engine, free: int, done: set[str]) -> Iterator[Request]:
    """The running requests that surely have tokens to compute and are not `done`, in the order of
    the running queue, up to the first that may lack blocks: a step serves no request behind it."""
    for request in map(engine.find, engine.running):
        if request is None or request.id in done or _to_compute(engine, request) <= 0:
            continue
        if _further_blocks(cfg, request, engine.placeholders(request.id)) > free:
            return
        if not _may_be_done(engine, request):
            yield request


@check(
    "a step schedules every request that it has room for",
    origin="vllm#49206",
    severity=Severity.LOST_PERFORMANCE,
    killed_by="runner_is_passed_over",
    needs=(Need.ROOM,),
)
def room_is_used(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """The loop over the running requests lost its position after a preemption, and skipped the next
    request for one step (vllm#49206). Nothing fails; the skipped request is late by one step each
    time.

    This check judges only steps without a lack of blocks, with tokens left in the batch and more
    free blocks than any policy would reserve. A running request that may lack blocks ends the step,
    even if nobody is preempted for it: blocks of a request with a step in flight are freed too
    late. A step that preempts must also serve the running requests that have room, unless a request
    had to preempt itself: then the step ends there. After a preemption it may leave the waiting
    requests to the next step. They are also judged only if room is the only condition of their
    admission: not under P/D, with a store, with sessions or with Mamba groups, where a request may
    wait for another request of the same step. With a drafter, an admitted request with one token to
    compute gets as many tokens as a sample with its drafts, or waits (vLLM's `pad_spec_decode`): a
    batch with fewer tokens left has no room for it.
    """
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return
    cfg, choices = cluster.engine(event.engine), event.chose or ()
    if _ends_early(choices):
        return
    preempted = {c.request for c in choices if isinstance(c, Preempt)}
    before, after = step.before.engine(cfg.name), step.after.engine(cfg.name)
    served = {c.request: c.tokens for c in choices if isinstance(c, Compute)}
    left = cfg.chunk_tokens - sum(served.values())
    # A failed load gives its blocks back after the running requests had their turn.
    free = len(after.free) if preempted else min(len(before.free), len(after.free))
    if left < max((g.block_size for g in cfg.groups if g.aligned), default=1):
        return
    could = list(_runners(cfg, before, free, {*served, *preempted}))
    waiting = _admissible(cluster, cfg, before) if left > cfg.drafts and not preempted else []
    places = cfg.max_requests - len(after.running)
    enough = sum(_further_blocks(cfg, r, r.max_tokens) for r in waiting) + cfg.watermark_blocks
    if places > 0 and enough <= free:
        could += waiting
    yield holds(len(served))
    for request in could:
        ahead = before.placeholders(request.id)
        if request.id not in served and _further_blocks(cfg, request, ahead) <= free:
            yield because(
                reason(
                    "has_room",
                    "{request} on {engine} is {status}, the step has {left} tokens "
                    "left, and {free} blocks are free",
                    status=request.status,
                    left=left,
                    free=free,
                ),
                reason("not_scheduled", "the step does not schedule it"),
                engine=cfg.name,
                request=request.id,
            )


READY = (WAITING, PREEMPTED, LOADED, FAILED)
"""Statuses in which a step may admit a request."""


def _has_pending_output(engine: Engine, name: str) -> bool:
    """Whether a token that was sampled before the preemption has not arrived yet."""
    return any(flight.fate == LATE for flight in engine.flights(name))


def _open(cluster: Cluster, one: str, other: str) -> bool:
    """Whether either of two jobs may come first: they have equal priority, and one of them is a
    session."""
    a, b = cluster.job(one), cluster.job(other)
    return a.priority == b.priority and bool(a.parts or b.parts)


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
    killed_by="priority_is_reversed",
    needs=(Need.PRIORITIES,),
)
def priority_is_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """With priority scheduling, the priority number of a job decides which request is admitted
    first and which is preempted last (vllm#19057). If a scheduler loses this order, an urgent
    request waits behind others, or loses its blocks to a request that could wait.

    A preempted request is the last in priority of the running requests. An admitted request is the
    first of the waiting requests of its kind; requests that hold blocks are admitted before the
    others. A request whose load failed may give its blocks back at any point of the step, so its
    place is free. A request with output pending from before its preemption cannot be admitted.

    The order of a session among requests of equal priority is free, because each of its parts
    arrives anew.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).by_priority:
        return
    engine = step.before.engine(event.engine)
    rank = {r.id: (cluster.job(r.id).priority, n) for n, r in enumerate(engine.requests)}
    has_blocks = {r.id: None if r.status == FAILED else bool(r.tables) for r in engine.requests}
    ready = (r.id for r in engine.requests if r.status in READY)
    waiting = [name for name in ready if not _has_pending_output(engine, name)]
    running = list(engine.running)
    for choice in event.chose or ():
        name = choice.request
        if isinstance(choice, Preempt):
            # If no request runs, a waiting session is preempted for another session.
            holders = [r for r in waiting if has_blocks[r] and r != choice.needy]
            last = max(running or holders, key=rank.__getitem__)
            if name == last or _open(cluster, name, last):
                yield holds()
            else:
                yield because(
                    reason("preempted", "{request} is preempted"),
                    reason(
                        "runs_priority",
                        "{last} runs and has priority {compared}",
                        last=last,
                        compared=_compared(rank, last, name),
                    ),
                    engine=engine.name,
                    request=name,
                )
            has_blocks[name] = False
            running = [r for r in running if r != name]
        elif name in waiting and not isinstance(choice, (FinishLoad, Release)):
            first = min(
                (r for r in waiting if has_blocks[r] == has_blocks[name]), key=rank.__getitem__
            )
            if name == first or _open(cluster, name, first):
                yield holds()
            else:
                yield because(
                    reason("admitted", "{request} is admitted"),
                    reason(
                        "waits_priority",
                        "{first} waits and has priority {compared}",
                        first=first,
                        compared=_compared(rank, first, name),
                    ),
                    engine=engine.name,
                    request=name,
                )
            waiting.remove(name)
        if isinstance(choice, Compute) and name not in running:
            running.append(name)


def _admitted_beside_others(before: Engine, event: Schedule) -> list[str]:
    """The requests that take their first blocks, or run on after a load, while another runs."""
    running, admitted = list(before.running), []
    for choice in event.chose or ():
        name = choice.request
        if not isinstance(choice, Admit | Compute) or name in running:
            continue
        if running:
            admitted.append(name)
        if isinstance(choice, Compute):
            running.append(name)
    return admitted


@check(
    "an admission beside running requests leaves the blocks of the watermark free",
    origin="vllm#44594",
    severity=Severity.LOST_PERFORMANCE,
    killed_by="watermark_is_ignored",
    needs=(Need.WATERMARK,),
)
def watermark_is_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """With a watermark, an admission beside running requests leaves blocks free, so that these
    requests can grow (vllm#44594). If an admission takes these blocks, the requests that run
    preempt each other soon.

    This check does not judge the first request of an idle engine, which may take all blocks. It
    does not judge a step in which a prediction is wrong: `predicted_is_taken` reports that.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).watermark_blocks:
        return
    after, kept = step.after.engine(event.engine), cluster.engine(event.engine).watermark_blocks
    exact = all(a.predicted == a.taken for a in step.effects.allocations)
    admitted = _admitted_beside_others(step.before.engine(event.engine), event)
    if not admitted or not exact or after.dead:
        return
    if len(after.free) >= kept:
        yield holds()
    else:
        yield because(
            reason(
                "leaves_free",
                "an admission on {engine} beside running requests leaves {kept} blocks free",
                kept=kept,
            ),
            reason(
                "admitted",
                "{requests:names} is admitted, and {free} blocks are free",
                requests=dict.fromkeys(admitted),
                free=len(after.free),
            ),
            engine=after.name,
            request=admitted[-1],
        )


@check(
    "the worker keeps a place for each request in the batch and for no other",
    origin="vllm#46974",
    severity=Severity.CRASH,
    killed_by="preemption_is_not_reported",
    needs=(Need.PLACES,),
)
def worker_forgets_who_left(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """The worker has `max_num_seqs` places for requests. A paused session keeps its place although
    it does not run, and the scheduler did not count it. It also did not report to the worker which
    requests a reset had preempted. The worker had more requests than places and failed
    (vllm#46974).

    After a step, the worker has no more requests than places. Each of them is unfinished and holds
    blocks: a preempted request, which starts over, has left.
    """
    event, places = step.event, step.effects.places
    if not isinstance(event, Schedule) or not places:
        return
    engine = step.after.engine(event.engine)
    if engine.dead:
        return
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
        if request is not None and request.tables and request.status not in (SENDING, ABORTED):
            yield holds()
        else:
            status = "has ended" if request is None else f"is {request.status}"
            yield because(
                reason(
                    "left_batch",
                    "{request} {status} on {engine} and has left the batch",
                    status=status,
                ),
                reason("keeps_place", "the worker has no report of this, and keeps a place for it"),
                engine=engine.name,
                request=name,
            )
