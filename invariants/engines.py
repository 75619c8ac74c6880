"""What must be true of the life of an engine: it survives, its requests end, and it keeps nothing
that is over."""

from collections.abc import Iterator

from kvproof.invariants.check import Ending, check
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
from kvproof.model.events import Event, ResetPrefixCache, ResetRunning
from kvproof.model.facts.connectors import Called, ResetAnswered
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    PAUSED,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Death,
    Engine,
)
from kvproof.model.step import Step

DIED = "died"
"""The kind of reason that says how an engine died."""


def died(dead: Death) -> Reason:
    """How the engine died."""
    sentence = "{engine} died: {exception} in {function}" if dead.exception else "{engine} died"
    return reason(
        DIED,
        f"{sentence}: {{message}}" if dead.message else sentence,
        exception=dead.exception,
        function=dead.function,
        message=dead.message,
    )


@check(
    "an engine survives every event",
    origin="vllm#42554, vllm#46231, vllm#43281, vllm#45207, vllm#32283",
    severity=Severity.CRASH,
    needs=(Need.DEATHS,),
    of_dead=True,
)
def engine_survives(seen: Step | Called | Played | Startup) -> Iterator[Judged]:
    """The align split of a Mamba engine asserted that a request has no external tokens. The first
    load from P broke the assertion (vllm#42554). A failed assertion in the scheduler ends the whole
    engine and every request on it.

    So does an exception in a connector, or in the scheduler that follows its answers (vllm#46231,
    vllm#43281, vllm#42289), and one in the loop of an engine, which the message of one client must
    not end for all. A start-up may refuse what it cannot serve, and says why: an assertion or a
    division by zero is no answer to a user (vllm#45207, vllm#32283).
    """
    if isinstance(seen, Step):
        for _, engine in seen.touched:
            yield holds() if engine.dead is None else _died_of(seen.event, engine, engine.dead)
    elif isinstance(seen, Called):
        yield holds() if seen.death is None else _died_in_call(seen, seen.death)
    elif seen.died is None:
        yield holds()
    else:
        yield because(
            reason("plays", "an engine runs, and messages of its clients come")
            if isinstance(seen, Played)
            else reason("starts", "an engine is started, and a first request comes"),
            reason("dies", "{words}", words=seen.died.words),
        )


def _died_of(event: Event, engine: Engine, dead: Death) -> Judged:
    return because(
        reason(
            "must_survive",
            "{event} is an event that every engine must survive",
            event=type(event).__name__,
        ),
        died(dead),
        engine=engine.name,
    )


def message_of(death: Death) -> Reason:
    """An exception with its message. A bare assertion has none: its statement says it."""
    return reason(
        "message",
        "{exception}: {message}",
        exception=death.exception,
        message=death.message or death.statement,
    )


def _died_in_call(fact: Called, death: Death) -> Judged:
    where = death.function
    return because(
        reason("connector_raised", "the connector raised an exception in {where}", where=where)
        if fact.in_connector
        else reason(
            "vllm_raised",
            "vLLM, with this connector, raised an exception in {where}",
            where=where,
        ),
        message_of(death),
    )


WAITS = "waits"
"""The kind of reason that says what a request lacks (see `strategies.waits`)."""


@check(
    "every submitted request can still finish",
    origin="vllm#42554",
    severity=Severity.HANG,
    needs=(Need.FUTURE,),
)
def every_request_can_finish(ending: Ending) -> Iterator[Judged]:
    """The align split cut a load from P to 0 tokens. The request stayed at the head of the waiting
    queue for ever, without an error (vllm#42554).

    This is a property of runs, not of single steps. The explorer asks whether a state is reachable
    from which the end of all requests is not reachable. A sampled run is continued to its end.
    """
    yield Judged(ending.why, ending.about) if ending.why else holds()


@check(
    "a reset empties the cache, or it is refused and changes nothing",
    origin="vllm#57727",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.RESETS,),
)
def reset_is_whole(step: Step) -> Iterator[Judged]:
    """A user changes the weights of a model and resets the prefix cache. An entry that stays in the
    cache holds KV of the old weights (compare vllm#57727). Later prompts hit it, and nothing
    reports the mistake.

    A reset that preempts the running requests is never refused, and no request keeps tokens that
    were computed before it.
    """
    event = step.event
    if not isinstance(event, ResetPrefixCache | ResetRunning):
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    if isinstance(event, ResetPrefixCache) and not step.effects.resets and after == before:
        yield holds()
        return
    yield holds_if(not after.cached) or because(
        reason("was_reset", "the cache of {engine} was reset"),
        reason(
            "keeps_entries",
            "the cache still has {entries} of {before} entries",
            entries=len(after.cached),
            before=len(before.cached),
        ),
        engine=event.engine,
    )
    for request in after.requests:
        yield holds_if(not request.computed) or because(
            reason("was_reset", "the cache of {engine} was reset"),
            reason(
                "keeps_tokens",
                "{request} keeps {computed} tokens that were computed before",
                computed=request.computed,
            ),
            engine=event.engine,
            request=request.id,
        )


@check(
    "a reset of the cache is not refused",
    origin="Scheduler.reset_prefix_cache",
    severity=Severity.WRONG_TOKENS,
    ideal=True,
)
def reset_is_answered(seen: Step | ResetAnswered) -> Iterator[Judged]:
    """Who changes the weights of a model and does not look at the answer of the reset serves KV of
    the old weights. vLLM refuses a reset while any block is in use. So a block that is given back
    too late, or never, also keeps the cache from being reset."""
    return _reset_of_step(seen) if isinstance(seen, Step) else _answer_to_reset(seen)


def _answer_to_reset(fact: ResetAnswered) -> Iterator[Judged]:
    yield holds_if(fact.done) or because(
        reason("asked_by_user", "the engine is asked to reset its cache"),
        reason(
            "refuses",
            "it refuses; it has {requests} requests, and {taken} of its blocks are in use",
            requests=fact.requests,
            taken=fact.taken,
        ),
        excuses=[_why_refused(fact)],
    )


def _why_refused(fact: ResetAnswered) -> Excuse:
    # No choice: who resets a cache wants what it has to be gone.
    if fact.cannot:
        return release("the connector says that it cannot reset its cache")
    if fact.death is not None:
        return release("the reset of the connector's cache raises an exception")
    if fact.requests:
        return choice("the engine has requests")
    if not fact.idle:
        return choice("the engine has no request, and still has something to do")
    if fact.taken:
        return release("the engine says that it is idle, and some of its blocks are in use")
    if fact.connector:
        return release("the engine is idle, and its connector does not reset its cache")
    return release("nothing has a block, and the reset is refused")


def _reset_of_step(step: Step) -> Iterator[Judged]:
    event = step.event
    if not isinstance(event, ResetPrefixCache):
        return
    engine = step.before.engine(event.engine)
    yield holds_if(step.effects.resets) or because(
        reason("asked", "{engine} is asked to reset its cache"),
        reason(
            "refused",
            "it refuses, and {used} of its blocks are in use",
            used=len(engine.blocks) - 1 - len(engine.free),
        ),
        excuses=_what_uses_blocks(engine),
        engine=engine.name,
    )


def _what_uses_blocks(engine: Engine) -> Iterator[Excuse]:
    holders = {request.status for request in engine.requests if any(request.tables)}
    if RUNNING in holders or engine.step or engine.steps or engine.deferred:
        yield choice("a request runs, or a step is in flight")
    if holders & {LOADING, LOADED, FAILED, SENDING, ABORTED}:
        yield choice("a transfer reads or writes blocks")
    if holders & {PAUSED, WAITING, PREEMPTED}:
        yield choice("a request that waits keeps what it has computed or loaded")
    if not holders and not engine.deferred:
        yield release("nothing has a block, and the reset is refused")


KNOWN_FOR_EVER = choice("it stays for the first time, and may be known for ever")


@check(
    "an engine without requests keeps no notes about them that grow",
    origin="vllm#44490",
    severity=Severity.LEAK,
    needs=(Need.KEPT_WHEN_IDLE,),
)
def idle_engine_keeps_nothing(step: Step) -> Iterator[Judged]:
    """The scheduler noted the ids of new blocks in a list, for a worker that erases them. Most
    models have no such worker, nobody took the list, and it grew with each block until the memory
    of the host was full (vllm#44490). An entry under a request id that stays after the end of its
    request does the same.

    Live vLLM is asked for every container of the scheduler. What stays for the first time is
    excused, because it may be known for ever, such as the address of another engine. What grows
    from one idle time to the next is kept for nobody. In the state itself, blocks that wait for the
    end of steps in flight are such a note.
    """
    for kept in step.effects.kept:
        yield holds_if(kept.before and not kept.grew) or because(
            reason(
                "keeps_entries",
                "{where} of {engine} has {items} entries from before {engine} was idle",
                where=kept.where,
                items=kept.items,
            ),
            reason("had_fewer", "it had fewer at the idle time before, and no step takes them"),
            excuses=() if kept.before else [KNOWN_FOR_EVER],
            engine=kept.engine,
        )
    for _, engine in step.touched:
        if engine.dead or engine.requests or engine.step or engine.steps:
            continue
        if not engine.deferred:
            yield holds()
        for _, blocks in engine.deferred:
            yield because(
                reason("is_idle", "{engine} has no requests and no steps in flight"),
                reason(
                    "blocks_wait",
                    "blocks {blocks} wait for the end of a step",
                    blocks=sorted(blocks),
                ),
                engine=engine.name,
            )
