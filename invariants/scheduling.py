"""What must be true of the steps of a scheduler, and of the requests that wait for them."""

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.check import check
from kvproof.invariants.guards_of_requests import batch
from kvproof.model.because import (
    Excuse,
    Judged,
    Reason,
    because,
    choice,
    holds,
    reason,
    release,
)
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import incoming, is_reverse
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Preempt, Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import (
    ABORTED,
    COUNTS,
    FAILED,
    LATE,
    LOADED,
    LOADING,
    MISQUEUED,
    PAUSED,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Engine,
    Key,
    Request,
)
from kvproof.model.step import Admission, Step


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
    killed_by="finished_still_runs",
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
    killed_by="impossible_fit_waits",
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


def _least_blocks(cfg: EngineConfig, request: Request) -> int:
    """Blocks without which a request can compute no further token: those that the token begins,
    and a first state in a Mamba group."""
    tables = request.tables or ((),) * len(cfg.groups)
    return sum(
        max(blocks_begun(request.computed + 1, group.block_size) - len(table), 0)
        if group.attention
        else not table
        for group, table in zip(cfg.groups, tables, strict=True)
    )


def _to_compute(engine: Engine, request: Request) -> int:
    """Tokens of a running request that a step could compute; 0 if its pending output is its last,
    even if all of its drafts are rejected."""
    pending = engine.placeholders(request.id)
    if pending and len(request.output) + 1 >= request.max_tokens:
        return 0
    return len(request.tokens) + pending - request.computed


class _Rest(NamedTuple):
    """What a step leaves over, and who could have had it: the requests that are not `done`, which
    means that the step neither schedules them nor preempts them.

    `left` are tokens. `given_back` blocks are free after the step, and `all_along` already while it
    is made. `running` has requests in the order of their queue; `waiting` has those for which the
    batch has a place.
    """

    cluster: Cluster
    cfg: EngineConfig
    step: Step
    choices: tuple[Choice, ...]
    done: set[str]
    left: int
    given_back: int
    all_along: int
    running: list[Request]
    waiting: list[Request]

    @property
    def before(self) -> Engine:
        """The engine before the step."""
        return self.step.before.engine(self.cfg.name)


def _rest_of(cluster: Cluster, cfg: EngineConfig, step: Step, event: Schedule, left: int) -> _Rest:
    before, after = step.before.engine(cfg.name), step.after.engine(cfg.name)
    choices = event.chose or ()
    done = {made.request for made in choices if isinstance(made, Admit | Compute | Preempt)}
    runners = filter(None, map(before.find, before.running))
    places = cfg.max_requests - len(after.running)
    paused = sum(r.status == PAUSED for r in before.requests)
    waiting = (r for r in before.requests if r.id not in done and _can_be_admitted(before, r))
    free = len(after.free)
    # The worker copies a block before the step, and its source is free only then.
    usable = free - sum(copy.engine == cfg.name for copy in step.effects.copies)
    preempts = any(isinstance(made, Preempt) for made in choices)
    return _Rest(
        cluster,
        cfg,
        step,
        choices,
        done,
        left,
        free,
        usable if preempts else min(len(before.free), usable),
        [r for r in runners if r.id not in done and _to_compute(before, r) > 0],
        list(waiting) if places > paused else [],
    )


def _can_be_admitted(engine: Engine, request: Request) -> bool:
    """Whether a step may admit a request. No step may where output from before a preemption is
    pending (`admitted_request_was_waiting`)."""
    return request.status in READY and not _has_pending_output(engine, request.id)


def _why_runner_waits(rest: _Rest, request: Request) -> Iterator[Excuse]:
    """The excuses of a step that passes over a running request."""
    queue, cfg = rest.before.running, rest.cfg
    place = queue.index(request.id)
    in_front = {*queue[:place]}
    for made in rest.choices:
        if isinstance(made, Preempt) and made.request == made.needy in in_front:
            yield release("a request in front of it gave up its own blocks, and the step ended")
        if isinstance(made, Release) and made.request in in_front:
            yield choice("a request in front of it lacked blocks, and nobody could give it any")
    lacks = [
        each
        for each in rest.running
        if _further_blocks(cfg, each, rest.before.placeholders(each.id)) > rest.all_along
    ]
    if any(each.id in in_front for each in lacks):
        yield choice("a request in front of it may lack blocks, and requests are served in order")
    if request in lacks:
        yield choice("the blocks may not be enough for all of its tokens and drafts")
    if len(request.output) + rest.before.placeholders(request.id) >= request.max_tokens:
        yield choice("the output that it waits for may be its last")
    yield from _too_few_left(rest)


def _too_few_left(rest: _Rest) -> Iterator[Excuse]:
    if rest.left < max((g.block_size for g in rest.cfg.groups if g.aligned), default=1):
        yield choice("fewer tokens are left than a block of states has, and chunks end with one")


def _why_not_admitted(rest: _Rest) -> Iterator[Excuse]:
    """The excuses of a step that leaves requests waiting."""
    cfg = rest.cfg
    if any(isinstance(made, Preempt) for made in rest.choices):
        yield choice("a request was preempted, and an admission might take what it gave up")
    if any(isinstance(made, Release) for made in rest.choices):
        yield choice("a running request lacks blocks")
    if rest.left <= cfg.drafts:
        yield choice("fewer tokens are left than a sample has with its drafts")
    needed = sum(_further_blocks(cfg, r, r.max_tokens) for r in rest.waiting)
    if needed > rest.all_along:
        yield choice("the blocks may not be enough for all who wait, with all of their tokens")
    elif needed + cfg.watermark_blocks > rest.all_along:
        yield choice("the blocks that are free are those of the watermark")
    yield from _too_few_left(rest)
    if cfg.connected:
        yield from _why_not_loaded(rest, needed)
    if cfg.aligned_group and any(_may_hit_a_new_state(rest, request) for request in rest.waiting):
        yield choice("one who waits may hit a state that this step writes, and all wait for it")


def _why_not_loaded(rest: _Rest, needed: int) -> Iterator[Excuse]:
    """The excuses of a step that begins no load for those who wait, who need `needed` blocks. Who
    loads cannot be preempted, so a load takes no blocks that others need for all of their tokens,
    those to come among them."""
    others = (r for r in rest.step.after.engine(rest.cfg.name).requests if r.tables)
    if needed + sum(_further_blocks(rest.cfg, r, r.max_tokens) for r in others) > rest.all_along:
        yield choice("a load would take blocks that others need for their tokens")
    if any(_turn_has_loaded(rest, request) for request in rest.waiting):
        yield release("a follow-up turn asks again for tokens whose only transfer is over")


def _turn_has_loaded(rest: _Rest, request: Request) -> bool:
    """Whether the transfer from which a follow-up turn may load is over, well or not."""
    name = incoming(rest.cluster, rest.cfg.name, request.id)
    over = rest.step.before.phase(name) in (Phase.CLOSED, Phase.REFUSED, Phase.ABANDONED)
    return is_reverse(name) and over


def _may_hit_a_new_state(rest: _Rest, request: Request) -> bool:
    """Whether a request could hit a state of another request that the step computes."""
    shortest = request.tokens[: rest.cfg.hit_unit]
    others = filter(None, map(rest.before.find, rest.done))
    return any(other.tokens.startswith(shortest) for other in others)


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

    A request has room where tokens are left in the batch, where the blocks for its next token are
    free after the step, and where a request that waits finds a place in the batch. A scheduler may
    choose to leave this room unused. A running request may lack blocks for all of its tokens, or
    one in front of it may, also if nobody is preempted for it: blocks of a request with a step in
    flight are freed too late. The output that a request waits for may be its last. After a
    preemption, waiting requests may be left to the next step; so they may where not all of them
    fit, where the watermark keeps the blocks, where a load would take what others need, or where
    one of them may hit a state that the step writes. A chunk that ends with a block of states, or a
    sample with its drafts (vLLM's `pad_spec_decode`), needs more tokens than one.

    A step of vLLM also ends where a request preempts itself, and serves no running request behind
    it. A follow-up turn waits for another load where its only load is over. No reason is known for
    either.
    """
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return  # cannot be judged: an engine that died in a step has not ended it
    cfg, served = cluster.engine(event.engine), batch(event)
    yield holds(len(served))
    left = cfg.chunk_tokens - served.total()
    if left <= 0:
        return
    rest = _rest_of(cluster, cfg, step, event, left)
    for request in (*rest.running, *rest.waiting):
        if _least_blocks(cfg, request) <= rest.given_back:
            runs = request.status == RUNNING
            yield because(
                reason(
                    "has_room",
                    "{request} on {engine} is {status}, the step has {left} tokens "
                    "left, and {free} blocks are free",
                    status=request.status,
                    left=left,
                    free=rest.given_back,
                ),
                reason("not_scheduled", "the step does not schedule it"),
                excuses=_why_runner_waits(rest, request) if runs else _why_not_admitted(rest),
                engine=cfg.name,
                request=request.id,
            )


@check(
    "a step computes all tokens of its requests that it has room for",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def budget_is_used(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A prompt is computed in chunks, each as long as the token budget of the step allows. A chunk
    that is shorter than it need be costs a step more, and nothing fails."""
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return  # cannot be judged: an engine that died in a step has not ended it
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    cfg, served = cluster.engine(event.engine), batch(event)
    left = cfg.chunk_tokens - served.total()
    for name, count in served.items():
        was, now = before.find(name), after.find(name)
        if was is None or now is None:
            continue  # cannot be judged: a request that is new or gone shows no tokens to compare
        known = len(was.tokens) + before.placeholders(name)
        if not left or now.computed >= known:
            yield holds()
        else:
            yield because(
                reason(
                    "could_compute",
                    "{request} on {engine} has {undone} tokens more to compute, and {left} are "
                    "left in the step",
                    undone=known - now.computed,
                    left=left,
                ),
                reason("gets", "the step computes {count} of its tokens", count=count),
                excuses=_why_shorter(cfg, event, after, now, count),
                engine=cfg.name,
                request=name,
            )


def _why_shorter(
    cfg: EngineConfig, event: Schedule, engine: Engine, request: Request, count: int
) -> Iterator[Excuse]:
    """The excuses of a chunk of `count` tokens that is shorter than the budget of its step."""
    if 0 < cfg.long_prefill_tokens <= count:
        yield choice("a request beside others gets no more tokens in a step")
    elif any(isinstance(made, Preempt) for made in event.chose or ()):
        yield choice("a request that had tokens of the step was preempted")
    elif cfg.aligned_group:
        yield choice("a chunk ends where a state is cached")
    elif _further_blocks(cfg, request, 0) > len(engine.free):
        yield choice("the blocks are not enough for more")
    else:
        yield choice("a chunk is shorter than it need be")


@check(
    "no step computes whole blocks of tokens that the prefix cache has",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def cached_tokens_are_not_computed(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """What the cache has need not be computed again: a request hits it when it is admitted. If two
    requests with one prompt are admitted before either is computed, both compute it."""
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return  # cannot be judged: an engine that died in a step has not ended it
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    cfg = cluster.engine(event.engine)
    looked_up = {each.request: each.cached for each in step.effects.admissions}
    for name, count in batch(event).items():
        request = after.find(name)
        cached = {key for key, blocks in looked_up.get(name, before.cached) if blocks}
        if request is None or not cached:
            continue  # nothing could be hit
        start = request.computed - count
        again = _cached_ends(cfg, cached, request, start)
        if not again:
            yield holds()
        else:
            yield because(
                reason(
                    "cached_before",
                    "the cache of {engine} has the first {tokens} tokens of {request}",
                    tokens=again[-1],
                ),
                reason(
                    "computes",
                    "the step computes them from token {start} on",
                    start=start,
                ),
                excuses=[
                    _why_computed_though_cached(cfg, request, start, again[-1], name in looked_up)
                ],
                engine=cfg.name,
                request=name,
            )


def _cached_ends(cfg: EngineConfig, cached: set[Key], request: Request, start: int) -> list[int]:
    """The ends of whole blocks from token `start` on, among the computed tokens of a request, whose
    prefixes are cached in all groups of full attention: up to the first that is not."""
    full = [index for index, group in enumerate(cfg.groups) if group.kind == "full"]
    unit = max((cfg.groups[index].block_size for index in full), default=0)
    ends = range(start - start % unit + unit, request.computed + 1, unit) if unit else range(0)
    ahead = cfg.hash_lookahead_tokens
    tokens = request.tokens
    return [*takewhile(lambda n: all((g, tokens[: n + ahead]) in cached for g in full), ends)]


def _why_computed_though_cached(
    cfg: EngineConfig, request: Request, start: int, end: int, admitted: bool
) -> Excuse:
    if not admitted:
        return choice("it was admitted before these tokens were in the cache")
    if end >= len(request.tokens):
        return choice("a sample needs its last token")
    if end - start <= cfg.eagle_drop_tokens:
        return choice("a drafter computes the last block of what is cached again")
    if any(group.kind != "full" for group in cfg.groups):
        return choice("a window or a state of these tokens is not in the cache")
    return release("it is admitted, and computes tokens that are in the cache")


@check(
    "no step computes tokens of a request whose last token is under way",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def no_step_comes_after_the_last_token(step: Step) -> Iterator[Judged]:
    """With async scheduling, a step is scheduled before the output of the step before has arrived.
    If that output has the last token of a request, the new step computes a token of it for nobody,
    and takes its place in the batch from another request."""
    event = step.event
    if not isinstance(event, Schedule):
        return
    engine = step.before.engine(event.engine)
    for name in batch(event) if engine.steps else ():
        request = engine.find(name)
        if request is None or request.status != RUNNING:
            continue
        flights = [flight for flight in engine.flights(name) if flight.fate == COUNTS]
        sure = sum(flight.samples for flight in flights)
        left = request.max_tokens - len(request.output)
        if left > max(sure, engine.placeholders(name)):
            yield holds()
        else:
            yield because(
                reason(
                    "under_way",
                    "{request} on {engine} lacks {left} tokens, and the steps in flight sample "
                    "{sure} and, with drafts, up to {most}",
                    left=left,
                    sure=sure,
                    most=engine.placeholders(name),
                ),
                reason("is_scheduled", "the step computes more of its tokens"),
                excuses=[
                    choice("its last token comes only if drafts are accepted")
                    if left > sure
                    else release("the steps in flight have its last token")
                ],
                engine=engine.name,
                request=name,
            )


@check(
    "the blocks of a preempted request are needed in the step that preempts it",
    origin="Scheduler.schedule; vllm#43543",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def preempted_blocks_are_needed(step: Step) -> Iterator[Judged]:
    """A preempted request computes its tokens again. If as many blocks are free after the step as
    the request gave up, the step could have done without them."""
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return  # cannot be judged: an engine that died in a step has not ended it
    before, free = step.before.engine(event.engine), len(step.after.engine(event.engine).free)
    for made in event.chose or ():
        request = before.find(made.request)
        if request is None or not isinstance(made, Preempt):
            continue
        own = sum(before.blocks[block].refs == 1 for table in request.tables for block in table)
        if free < own:
            yield holds()
        else:
            yield because(
                reason("gives_up", "{request} is preempted, and gives up {own} blocks", own=own),
                reason("free_after", "{free} blocks are free after the step", free=free),
                excuses=_why_preempted(event, made, own),
                engine=before.name,
                request=request.id,
            )


def _why_preempted(event: Schedule, preempted: Preempt, own: int) -> Iterator[Excuse]:
    """The excuses of a step that does not need the `own` blocks of a request that it preempts."""
    given = [made for made in event.chose or () if not isinstance(made, Admit)]
    if preempted.request == preempted.needy:
        yield choice("it lacked a block itself, and nobody else was to be preempted for it")
    elif any(isinstance(made, Preempt) and made.request == preempted.needy for made in given):
        yield choice("the request that needed its blocks was preempted after it")
    elif sum(len(blocks) for made in given for blocks in made.freed) > own:
        yield choice("other blocks were given back in the same step")
    else:
        yield release("the step preempts a request, and the blocks that were free are enough")


@check(
    "a preempted request does not compute the tokens of whole blocks again",
    origin="Scheduler._preempt_request; vllm#43543",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def preempted_tokens_are_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A preempted request gives its blocks back, and they stay in the prefix cache. If it is
    admitted again before others take them, it finds there what it had computed. A request that has
    output had computed all of its tokens but the last."""
    for admission in step.effects.admissions:
        request = step.before.engine(admission.engine).find(admission.request)
        if request is None or request.status != PREEMPTED or not request.output:
            continue  # cannot be judged: nothing says how many tokens it had computed
        cfg = cluster.engine(admission.engine)
        computed = max(len(request.tokens) - 1 - cfg.eagle_drop_tokens, 0)
        due = computed - computed % cfg.hit_unit
        found = admission.hit + admission.external
        if found >= due:
            yield holds()
        else:
            yield because(
                reason(
                    "had_computed",
                    "{request} on {engine} had computed {due} tokens in whole blocks",
                    due=due,
                ),
                reason("finds", "it is admitted again, and finds {found}", found=found),
                excuses=_why_computed_again(cfg, admission, due),
                engine=admission.engine,
                request=request.id,
            )


def _why_computed_again(cfg: EngineConfig, admission: Admission, due: int) -> Iterator[Excuse]:
    """The excuses of an admission that finds fewer than `due` tokens of a preempted request."""
    keys = {key for key, blocks in admission.cached if blocks}
    ahead = cfg.hash_lookahead_tokens
    lost = any(
        (index, admission.tokens[: end + ahead]) not in keys
        for index, group in enumerate(cfg.groups)
        for end in range(group.block_size, due + cfg.eagle_drop_tokens + 1, group.block_size)
        if group.kind == "full"
    )
    if not cfg.prefix_caching:
        yield choice("prefix caching is off")
    elif lost:
        yield choice("some of its blocks are not in the cache any more")
    elif any(group.kind != "full" for group in cfg.groups):
        yield choice("a window or a state of it is not kept where these tokens end")
    else:
        yield release("all of its blocks are in the cache, and it computes them again")


READY = (WAITING, PREEMPTED, LOADED, FAILED)
"""Statuses in which a step may admit a request."""


def _has_pending_output(engine: Engine, name: str) -> bool:
    """Whether a token that was sampled before the preemption has not arrived yet."""
    return any(flight.fate == LATE for flight in engine.flights(name))


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
    killed_by="priority_is_reversed",
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
    waiting = [name for name in ready if not _has_pending_output(engine, name)]
    running = list(engine.running)
    for made in event.chose or ():
        name = made.request
        if isinstance(made, Preempt):
            # If no request runs, a waiting session is preempted for another session.
            holders = [r for r in waiting if has_blocks[r] and r != made.needy]
            last = max(running or holders, key=rank.__getitem__)
            if name == last:
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
            if name == first:
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
    killed_by="watermark_is_ignored",
    needs=(Need.WATERMARK,),
)
def watermark_is_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """With a watermark, an admission beside running requests leaves blocks free, so that these
    requests can grow (vllm#44594). If an admission takes these blocks, the requests that run
    preempt each other soon.

    The first request of an idle engine may take all blocks. A step in which a prediction is wrong
    is excused: `predicted_is_taken` reports that.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).watermark_blocks:
        return
    after, kept = step.after.engine(event.engine), cluster.engine(event.engine).watermark_blocks
    admitted = _admitted(step.before.engine(event.engine), event)
    if not admitted or after.dead:
        return  # nothing to judge; of an engine that died in a step, it cannot be judged
    if len(after.free) >= kept:
        yield holds()
    else:
        yield because(
            reason("leaves_free", "an admission on {engine} leaves {kept} blocks free", kept=kept),
            reason(
                "admitted",
                "{requests:names} is admitted, and {free} blocks are free",
                requests=admitted,
                free=len(after.free),
            ),
            excuses=_why_below_watermark(step, admitted),
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
