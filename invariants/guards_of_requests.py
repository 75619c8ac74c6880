"""Guards of the scheduler: what a step may do with a request, and how many tokens it counts."""

import unicodedata
from collections import Counter
from collections.abc import Iterator

from kvproof.invariants.changes import Scheduled, alive, requests
from kvproof.invariants.check import check
from kvproof.model.because import Excuse, Judged, Reason, because, choice, holds, holds_if, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Compute,
    Continue,
    Event,
    FinishLoad,
    LeaseExpire,
    Preempt,
    ResetRunning,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.needs import Need
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
    VOID,
    WAITING,
    Engine,
    Request,
)
from kvproof.model.step import Step


def batch(event: Schedule) -> Counter[str]:
    """The tokens of each request of a step, without requests that the step preempts."""
    tokens: Counter[str] = Counter()
    for made in event.chose or ():
        if isinstance(made, Compute):
            tokens[made.request] += made.tokens
        elif isinstance(made, Preempt):
            tokens.pop(made.request, None)
    return tokens


def _too_many(cfg: EngineConfig, before: Engine, request: Request, count: int) -> Iterator[Judged]:
    """What is wrong if a step computes `count` tokens of a request, which is shown after it."""
    others = sum(r.status in (WAITING, PREEMPTED, RUNNING) for r in before.requests) > 1
    if 0 < cfg.long_prefill_tokens < count:
        yield because(
            reason(
                "tokens_beside_others",
                "a request of {engine} beside others may get "
                "{long_prefill_tokens} tokens in a step",
                long_prefill_tokens=cfg.long_prefill_tokens,
            ),
            reason("gets", "{request} gets {count}", count=count),
            excuses=() if others else [choice("no other request is there that could use them")],
            engine=before.name,
            request=request.id,
        )
    pending = before.placeholders(request.id)
    if count < 1 or request.computed > len(request.tokens) + pending + cfg.drafts:
        yield because(
            reason(
                "has_tokens",
                "{request} on {engine} has {known} tokens, steps in flight "
                "sample {pending} more, and a drafter proposes at most {drafts}",
                known=len(request.tokens),
                pending=pending,
                drafts=cfg.drafts,
            ),
            reason(
                "scheduled_up_to",
                "{count} tokens are scheduled, up to token {computed}",
                count=count,
                computed=request.computed,
            ),
            engine=before.name,
            request=request.id,
        )


@check(
    "a step has at most the permitted tokens and requests, and each request once",
    part="scheduler",
    severity=Severity.CRASH,
    needs=(Need.BATCH,),
)
def step_keeps_its_limits(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """A step is a batch of at most `max_num_batched_tokens` tokens and `max_num_seqs` requests, and
    the buffers of the worker have no room for more. A request is in the batch once. Its tokens are
    known, or steps in flight sample them, or a drafter proposes them (vllm#46974, vllm#53130).
    Beside other requests it gets at most `long_prefill_token_threshold` tokens, so that it leaves
    tokens for them."""
    before, after = made.before, made.after
    cfg, tokens = cluster.engine(after.name), batch(made.event)
    yield holds_if(tokens.total() <= cfg.chunk_tokens) or because(
        reason(
            "tokens_of_a_step",
            "a step of {engine} may have {chunk_tokens} tokens",
            chunk_tokens=cfg.chunk_tokens,
        ),
        reason("tokens_scheduled", "{tokens} tokens are scheduled", tokens=tokens.total()),
        engine=after.name,
    )
    places = [r.id for r in after.requests if r.status in (RUNNING, PAUSED)]
    if len(places) > cfg.max_requests:
        begun = set(after.running) - set(before.running)
        yield because(
            reason(
                "requests_at_a_time",
                "{engine} may run {max_requests} requests at a time",
                max_requests=cfg.max_requests,
            ),
            reason(
                "take_places",
                "{places:names} run, or are sessions that keep their place",
                places=places,
            ),
            excuses=() if begun else [choice("none of them began to run in this step")],
            engine=after.name,
        )
    for name, count in tokens.items():
        request = after.find(name)
        if request is not None:
            wrong = tuple(_too_many(cfg, before, request, count))
            yield from wrong or (holds(),)


@check(
    "a request is admitted only while it waits, and its load is finished only after the load "
    "has ended",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.ADMITTED,),
)
def admitted_request_was_waiting(of_step: Scheduled) -> Iterator[Judged]:
    """If a request is admitted while it holds blocks, it loses these blocks. If it is admitted
    while an earlier token is pending, this token gets a wrong position (vllm#48245)."""
    before, admitted = of_step.before, reason("is_admitted", "it is admitted")
    for made in of_step.choices:
        request = before.find(made.request)
        if request is None or not isinstance(made, Admit | FinishLoad):
            continue
        status = reason("has_status", "{request} on {engine} is {status}", status=request.status)
        late = any(f.fate == LATE for f in before.flights(request.id))
        wrong: Reason | None = None
        if isinstance(made, FinishLoad) and request.status not in (LOADED, FAILED):
            wrong = reason("load_is_finished", "the step finishes its load")
        if isinstance(made, Admit) and request.status not in (WAITING, PREEMPTED, FAILED):
            wrong = admitted
        if isinstance(made, Admit) and late:
            status = reason("token_is_pending", "an earlier token of {request} is pending")
            wrong = admitted
        if wrong is None:
            yield holds()
        else:
            yield because(status, wrong, engine=before.name, request=request.id)


def _after_schedule(event: Schedule, request: Request) -> set[int]:
    """The permitted numbers of computed tokens after the choices of a step."""
    counts = {request.computed}
    for made in event.chose or ():
        if made.request != request.id:
            continue
        if isinstance(made, Admit):
            counts = {made.local_hit + made.external}
        elif isinstance(made, Compute):
            counts = {count + made.tokens for count in counts}
        elif isinstance(made, Preempt):
            counts = {0}
        elif isinstance(made, FinishLoad):
            failed = request.status == FAILED
            counts = {0} if failed else {min(c, len(request.tokens) - 1) for c in counts}
    return counts


def _after_output(before: Engine, event: Complete, was: Request) -> set[int]:
    """The permitted numbers of computed tokens after the output of the oldest step."""
    if event.failed == was.id:
        return {was.hit}
    accepted, count = event.accepted.get(was.id, 0), was.computed
    if was.id in dict(before.step or ()):
        count -= max(was.computed - len(was.tokens) - accepted, 0)
    for flight in before.steps[0] if before.steps else ():
        if flight.request == was.id and flight.fate == COUNTS and flight.samples:
            count -= flight.ahead - accepted
    return {count}


def _why_fewer(event: Event, was: Request, now: Request, count: int) -> Iterator[Excuse]:
    """The excuses of a request with fewer computed tokens than the `count` of the steps."""
    if not isinstance(event, Complete) or len(now.output) < now.answer_tokens:
        return
    after_end = event.accepted.get(was.id, 0) + 1 - (len(now.output) - len(was.output))
    if now.computed in (count - max(after_end, 0), min(count, len(now.tokens) - 1)):
        yield choice("it has ended, and tokens after its end do not count")


def _allowed(step: Step, before: Engine, was: Request, now: Request) -> set[int]:
    event = step.event
    if isinstance(event, Schedule) and event.engine == before.name:
        return _after_schedule(event, was)
    if isinstance(event, Complete) and event.engine == before.name:
        return _after_output(before, event, was)
    begins_anew = now.status != was.status and now.status in (FAILED, "preempted")
    return {0} if begins_anew else {was.computed}


@check(
    "a request counts exactly its scheduled, loaded and hit tokens as computed",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.CHANGED_COUNTS,),
)
def computed_tokens_are_those_scheduled(step: Step) -> Iterator[Judged]:
    """If the number of computed tokens is too high, the next step skips tokens. If it is too low,
    the next step computes tokens twice and advances a Mamba state twice (vllm#37310, vllm#44526).

    A step adds the tokens that it schedules. Its output subtracts the drafts that were not
    accepted. A preemption, a failed load and a reset set the number to 0. A request that has loaded
    its whole prompt computes the last token again, to sample from it. A request that ends among
    accepted drafts may count without the drafts after its end, and without the tokens of later
    steps, which compute nothing that counts.
    """
    for engines in alive(step):
        for name, was, now in requests(engines):
            if was is None or now is None:
                continue
            allowed = _allowed(step, engines.before, was, now)
            yield holds_if(now.computed in allowed) or because(
                reason(
                    "must_have",
                    "{request} on {engine} had {computed} computed tokens, and must have "
                    "{right:either} after this event",
                    computed=was.computed,
                    right=sorted(allowed),
                ),
                reason("has", "it has {computed}", computed=now.computed),
                excuses=_why_fewer(step.event, was, now, max(allowed)),
                engine=engines.after.name,
                request=name,
            )


def sampled(before: Engine, event: Complete, request: Request) -> int:
    """Number of tokens that the output of the oldest step gives to a request."""
    if event.failed == request.id:
        return 0
    tokens = event.accepted.get(request.id, 0) + 1
    if request.id in dict(before.step or ()):
        return tokens if request.computed >= len(request.tokens) else 0
    shares = [f for f in (before.steps[0] if before.steps else ()) if f.request == request.id]
    return tokens if any(f.samples and f.fate != VOID for f in shares) else 0


def _alike(one: str, other: str) -> bool:
    """Whether two letters are the same token of the same request. A mathematical letter says that
    its session has dropped a token before it."""
    marked = any(unicodedata.name(each, "").startswith("MATHEMATICAL") for each in (one, other))
    plain = (unicodedata.normalize("NFKC", each) for each in (one, other))
    return one == other or (marked and len({*plain}) == 1)


def _why_another_prompt(was: str, now: str) -> Iterator[Excuse]:
    if was.startswith(now):
        yield choice("its last tokens are left to D")
    elif len(now) <= len(was) and all(map(_alike, was, now)):
        yield choice("its session has dropped a token before it")


@check(
    "a request gets each token that is sampled for it exactly once, and keeps its prompt",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.SAMPLED,),
)
def output_is_what_was_sampled(step: Step) -> Iterator[Judged]:
    """If a sampled token is lost or kept twice, all later tokens are at wrong positions. If the
    prompt of a request changes, the request computes another prompt (vllm#48245, vllm#45138).

    The output of a step gives each request its sampled token and its accepted drafts before it, up
    to the number of tokens that the request asked for, or to the token with which the model ends
    it. No other event gives tokens. The output of a request that has ended, or that started again
    after a reset, is dropped.
    """
    event = step.event
    for engines in alive(step):
        before, after = engines
        for name, was, now in requests(engines):
            goes_on = isinstance(event, Continue) and event.request == name
            if was is None or now is None or goes_on:
                continue
            added = 0
            if isinstance(event, Complete) and event.engine == before.name:
                added = sampled(before, event, was)
            expected = min(len(was.output) + added, was.answer_tokens)
            yield holds_if(len(now.output) == expected) or because(
                reason(
                    "had_output",
                    "{request} on {engine} had {tokens} output tokens, and the event adds {added}",
                    tokens=len(was.output),
                    added=added,
                ),
                reason("has_output", "it has {tokens} output tokens", tokens=len(now.output)),
                engine=after.name,
                request=name,
            )
            yield holds_if(was.prompt == now.prompt) or because(
                reason(
                    "had_prompt",
                    "{request} on {engine} had the prompt {prompt!r}",
                    prompt=was.prompt,
                ),
                reason("has_prompt", "its prompt is now {prompt!r}", prompt=now.prompt),
                excuses=_why_another_prompt(was.prompt, now.prompt),
                engine=after.name,
                request=name,
            )


LOAD_FAILED = choice("its load has failed, and then the engine is told to end it")


@check(
    "a request ends with the last token that it asked for, and not before",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.ENDS,),
)
def request_ends_with_its_last_token(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A request that continues after its last token wastes steps and keeps its blocks. A request
    that ends earlier has an incomplete answer (vllm#53130)."""
    event = step.event
    if not isinstance(event, Complete):
        return
    for engines in alive(step):
        if engines.after.name != event.engine:
            continue
        for name, was, now in requests(engines):
            if was is None or was.status not in (RUNNING, PREEMPTED):
                continue  # the output is of no such request
            tokens = len(was.output) + sampled(engines.before, event, was)
            going = now is not None and now.status in (WAITING, RUNNING, PREEMPTED)
            yield holds_if(going == (tokens < was.answer_tokens)) or because(
                reason(
                    "has_output",
                    "{request} on {engine} has {tokens} of its {max_tokens} output tokens",
                    tokens=tokens,
                    max_tokens=was.answer_tokens,
                ),
                reason(
                    "has_status", "its status is {status}", status=now.status if now else "gone"
                ),
                excuses=[LOAD_FAILED]
                if event.failed == name and cluster.load_failure == "fail"
                else (),
                engine=engines.after.name,
                request=name,
            )


NEW = GONE = "gone"

_STARTED = (RUNNING, LOADING)
_ABORTABLE = (WAITING, PREEMPTED, RUNNING, LOADING, LOADED, FAILED, PAUSED, MISQUEUED)
_LOAD_ENDS = {LOADING: (LOADED, FAILED, GONE), ABORTED: (GONE,), SENDING: (GONE,)}

ALLOWED: dict[type, dict[str, tuple[str, ...]]] = {
    Submit: {NEW: (WAITING,)},
    Schedule: {
        WAITING: (*_STARTED, PREEMPTED),
        PREEMPTED: _STARTED,
        RUNNING: (PREEMPTED,),
        LOADED: (WAITING, PREEMPTED, RUNNING),
        FAILED: (WAITING, PREEMPTED, RUNNING, LOADING),
    },
    Complete: {RUNNING: (GONE, SENDING, PAUSED), PREEMPTED: (GONE, SENDING, PAUSED)},
    Continue: {PAUSED: (WAITING, GONE)},
    TransferDone: _LOAD_ENDS,
    TransferFail: _LOAD_ENDS,
    LeaseExpire: _LOAD_ENDS,
    Abort: dict.fromkeys(_ABORTABLE, (GONE, ABORTED)),
    ResetRunning: {RUNNING: (PREEMPTED,)},
}


def _concerned(step: Step, name: str) -> bool:
    """Whether the event names the request, or is about all requests of an engine."""
    event = step.event
    if isinstance(event, Schedule):
        return any(name in (c.request, getattr(c, "needy", "")) for c in event.chose or ())
    if isinstance(event, Submit | Continue | Abort):
        return name == event.request
    # An output is about many requests; a transfer has a different request on each engine.
    return True


@check(
    "a request changes its status only as the event permits",
    part="scheduler",
    severity=Severity.HANG,
    needs=(Need.CHANGED_STATUS,),
)
def status_follows_the_event(step: Step) -> Iterator[Judged]:
    """A request with a wrong status is scheduled twice, or never (vllm#49439).

    The table has the permitted changes of status for each kind of event. GONE is a request that its
    engine no longer has, and NEW is a request that the engine did not have before.
    """
    table = ALLOWED.get(type(step.event), {})
    for engines in alive(step):
        for name, was, now in requests(engines):
            old, new = was.status if was else NEW, now.status if now else GONE
            if old == new:
                continue
            yield holds_if(new in table.get(old, ()) and _concerned(step, name)) or because(
                reason("was", "the status of {request} on {engine} was {old}", old=old),
                reason(
                    "is_after",
                    "after {event} it is {new}",
                    event=type(step.event).__name__,
                    new=new,
                ),
                engine=engines.after.name,
                request=name,
            )
