"""If the number of computed tokens is too high, the next step skips tokens. If it is too low, the
next step computes tokens twice and advances a Mamba state twice (vllm#37310, vllm#44526).

A step adds the tokens that it schedules. Its output subtracts the drafts that were not accepted. A
preemption, a failed load and a reset set the number to 0. A request that has loaded its whole
prompt computes the last token again, to sample from it. If a request ends among accepted drafts,
the spec permits the number with and without the drafts after the end, and with and without the
tokens of later steps, which compute nothing that counts.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Complete, Compute, FinishLoad, Preempt, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import Requests, alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.state import COUNTS, FAILED, Engine, Request
from kvproof.model.step import Step


def _after_schedule(event: Schedule, request: Request) -> set[int]:
    """The permitted numbers of computed tokens after the choices of a step."""
    counts = {request.computed}
    for choice in event.chose or ():
        if choice.request != request.id:
            continue
        if isinstance(choice, Admit):
            counts = {choice.local_hit + choice.external}
        elif isinstance(choice, Compute):
            counts = {count + choice.tokens for count in counts}
        elif isinstance(choice, Preempt):
            counts = {0}
        elif isinstance(choice, FinishLoad):
            failed = request.status == FAILED
            counts = {0} if failed else {min(c, len(request.tokens) - 1) for c in counts}
    return counts


def _after_output(before: Engine, event: Complete, was: Request, now: Request) -> set[int]:
    """The permitted numbers of computed tokens after the output of the oldest step."""
    if event.failed == was.id:
        return {was.hit}
    accepted, end = event.accepted.get(was.id, 0), len(now.tokens) - 1
    count = was.computed
    if was.id in dict(before.step or ()):
        count -= max(was.computed - len(was.tokens) - accepted, 0)
    for flight in before.steps[0] if before.steps else ():
        if flight.request == was.id and flight.fate == COUNTS and flight.samples:
            count -= flight.ahead - accepted
    if len(now.output) < now.max_tokens:
        return {count}
    after_end = accepted + 1 - (len(now.output) - len(was.output))
    return {count, count - max(after_end, 0), min(count, end)}


def _allowed(step: Step, before: Engine, was: Request, now: Request) -> set[int]:
    event = step.event
    if isinstance(event, Schedule) and event.engine == before.name:
        return _after_schedule(event, was)
    if isinstance(event, Complete) and event.engine == before.name:
        return _after_output(before, event, was, now)
    begins_anew = now.status != was.status and now.status in (FAILED, "preempted")
    return {0} if begins_anew else {was.computed}


def _difference(engine: Engine, request: Requests, allowed: set[int]) -> Because:
    assert request.before is not None
    assert request.after is not None
    return because(
        reason(
            "must_have",
            "{request} on {engine} had {computed} computed tokens, and must have "
            "{right:either} after this event",
            computed=request.before.computed,
            right=sorted(allowed),
        ),
        reason("has", "it has {computed}", computed=request.after.computed),
        engine=engine.name,
        request=request.name,
    )


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """The number of computed tokens of each request is a permitted one."""
    for engines in alive(step):
        for request in requests(engines):
            was, now = request.before, request.after
            if was is None or now is None:
                continue
            allowed = _allowed(step, engines.before, was, now)
            if now.computed not in allowed:
                yield _difference(engines.after, request, allowed)


GUARD = Guard(
    id="computed_tokens_are_those_scheduled",
    name="a request counts exactly its scheduled, loaded and hit tokens as computed",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.CHANGED_COUNTS,),
)
