"""The loop of an engine: its clients are answered, and it waits for a message only if nothing is
left to do."""

from collections.abc import Callable, Collection, Iterator

from kvproof.invariants.check import check
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
from kvproof.model.facts.connectors import Unpublished
from kvproof.model.facts.loop import LoopWait, Played
from kvproof.model.severity import Severity


def idle(wait: LoopWait) -> Reason:
    """The fact with which most of these checks begin: the loop says that it has nothing to do. It
    waits for a message, or it has ended."""
    if not wait.number:
        return reason("ended", "the loop of the engine has ended")
    return reason(
        "idle",
        "the loop of the engine waits for a message, for the {number}. time",
        number=wait.number,
    )


def nothing_left(wait: LoopWait) -> bool:
    """Whether a waiting loop has nothing left: no request, step, transfer or block. An engine that
    has ended may drop the rest."""
    left = wait.waiting or wait.transfers or wait.steps or wait.held
    return bool(wait.number) and not (wait.paused or left)


def unpaused(played: Played) -> Iterator[LoopWait]:
    """The moments at which the loop waited although no client had paused the engine."""
    return (wait for wait in played.waits if not wait.paused)


def _why_it_waits(wait: LoopWait) -> Iterator[Excuse]:
    """The excuse of a loop that waits for a message although something is left to do."""
    if wait.paused:
        yield choice("a client has paused the engine")


def _nothing_is_left(
    played: Played, left: Callable[[LoopWait], Collection[str]], why: Reason
) -> Iterator[Judged]:
    """Judge that none of these requests is left where the loop waits; `why` says what is wrong with
    one that is."""
    for wait in played.waits:
        names = left(wait)
        yield holds(not names)
        for name in names:
            yield because(idle(wait), why, excuses=_why_it_waits(wait), request=name)


TOLD_TO_END = choice("the engine was told to end")

RESET_UNDER_LOADS = release(
    "the engine has a connector, and a reset of the cache fails while that loads blocks"
)

IN_A_PAUSE = choice("the engine took the call while a pause was in flight")


def _received(before: int) -> Reason:
    """The fact that a client received one more token, after `before` others that follow the
    reasoning."""
    return reason(
        "received",
        "the client of {request} received {before} tokens and then one more, not counting "
        "reasoning",
        before=before,
    )


@check(
    "every request that the engine took is answered",
    origin="EngineCoreProc.run_busy_loop",
    severity=Severity.HANG,
)
def accepted_request_is_answered(played: Played) -> Iterator[Judged]:
    """A request that the engine took has an end, unless its client is gone. It is a finding if
    every pause and every transfer has ended, and the loop runs without end. A loop that waits is
    judged by `idle_engine_has_no_waiting_request`."""
    for one in played.requests:
        yield holds_if(one.is_answered) or because(
            reason(
                "takes", "the engine took {request}; no client pauses it, and no transfer is late"
            ),
            reason("goes_on", "the loop goes on, and {request} has no end"),
            excuses=() if played.busy else _why_unanswered(played),
            request=one.name,
        )


def _why_unanswered(played: Played) -> Iterator[Excuse]:
    """The excuses of a loop that has ended, or waits, although a request has no end."""
    if played.stopped:
        yield TOLD_TO_END
    elif played.waits and played.waits[-1].paused:
        yield from _why_it_waits(played.waits[-1])
    else:
        yield release("the loop waits for a message, and a request has no end")


@check(
    "the loop of an engine gets each request that is sent to it",
    origin="EngineCoreProc.process_input_sockets; vllm#30895, vllm#46747",
    severity=Severity.HANG,
)
def sent_request_reaches_the_loop(played: Played) -> Iterator[Judged]:
    """A thread reads the messages of clients and prepares their requests for the loop. A front
    sends what its engine can serve, so no request is lost on the way, and none is refused. Nobody
    waits for one whose client has gone."""
    for one in played.requests:
        yield holds_if(one.gone or not one.lost) or because(
            reason("read", "the engine has read all messages of its clients"),
            reason(
                "lost",
                "its loop did not get {request}, or a part of it: {times} messages",
                times=one.lost,
            ),
            request=one.name,
        )


OFFLINE = release("only the front of a server learns it")
"""What vLLM did when vllm#46747 had mended `AsyncLLM` alone."""


@check(
    "a front learns which images its engine has forgotten",
    origin="EngineCoreProc._handle_mm_cache_miss; vllm#46747",
    severity=Severity.HANG,
)
def forgotten_image_is_sent_again(played: Played) -> Iterator[Judged]:
    """A front sends the name of an image in its place if it believes that the engine has it. Where
    the engine has forgotten the image, the request fails, and so does each later one with this
    image, unless the front learns of it (vllm#46747)."""
    for one in played.requests if not played.died else ():
        if one.untold is None:
            continue
        yield holds(not one.untold)
        for front in one.untold:
            yield because(
                reason("forgot", "the engine has forgotten the image of {request}"),
                reason(
                    "believes",
                    "{front} believes that the engine has it",
                    front=front,
                    feature=front,
                ),
                request=one.name,
                excuses=[OFFLINE] * (front == "LLMEngine"),
            )


@check(
    "no step computes a request whose client has left",
    origin="EngineCoreProc._handle_client_request; Scheduler.finish_requests",
    severity=Severity.LEAK,
)
def request_of_nobody_is_not_computed(played: Played) -> Iterator[Judged]:
    """Who closes a connection says so to the engine, for all of its requests in one message. What
    is computed after that nobody reads, and its blocks are missing to others."""
    for one in played.requests:
        if one.gone:
            yield holds_if(not one.steps_after) or because(
                reason("client_left", "the engine was told that the client of {request} has left"),
                reason(
                    "computed_after",
                    "{steps} steps that began after that computed it",
                    steps=one.steps_after,
                ),
                request=one.name,
            )


@check(
    "a request has one end",
    origin="EngineCoreOutput.finish_reason",
    severity=Severity.WRONG_REPORT,
)
def request_ends_once(played: Played) -> Iterator[Judged]:
    """A client takes the first end of its request for the last of its outputs. Of a session, each
    answer has one end, and it may be aborted between two of them."""
    for one in played.requests:
        most = one.most_ends
        yield holds_if(len(one.ends) <= most, len(one.ends)) or because(
            reason("ends", "{request} has ended with {first}", first=one.ends[most - 1]),
            reason("again", "it ends again, with {second}", second=one.ends[most]),
            request=one.name,
        )


@check(
    "an answer that comes to its end has its tokens",
    origin="Scheduler.update_from_output",
    severity=Severity.WRONG_TOKENS,
)
def answer_has_its_tokens(played: Played) -> Iterator[Judged]:
    """Outputs may come late: after a pause, after a preemption, after a reset. An answer ends where
    its model ends it, and otherwise with its largest length: no output is lost or counted twice,
    and none follows the last one, also where a step has sampled more."""
    for one in played.requests:
        if not one.is_whole:
            continue
        yield holds_if(one.tokens == one.answer) or because(
            reason(
                "ends",
                "the answer of {request} has come to its end, {answer} tokens",
                answer=one.answer,
            ),
            reason("received", "its client received {tokens} tokens", tokens=one.tokens),
            request=one.name,
        )


@check(
    "a call of a client has one answer",
    origin="EngineCoreProc._invoke_utility_method",
    severity=Severity.HANG,
)
def call_is_answered_once(played: Played) -> Iterator[Judged]:
    """A client that pauses an engine, ends a pause or resets the cache waits for the answer. An
    engine that is told to end is an exception."""
    for call in played.calls:
        yield holds_if(call.answers == 1) or because(
            reason("calls", "a client has called {method}", method=call.method),
            reason("answers", "it received {answers} answers", answers=call.answers),
            excuses=[TOLD_TO_END] if played.stopped else (),
        )


@check(
    "a call of a client does not fail",
    origin="EngineCoreProc._invoke_utility_method",
    severity=Severity.WRONG_REPORT,
)
def call_does_not_fail(played: Played) -> Iterator[Judged]:
    """The engine goes on after an exception in a call, and the client gets it as the answer: what
    it called for is done in part or not at all."""
    loads = bool(played.plan.connected or played.plan.store)
    for call in played.calls:
        excused = [TOLD_TO_END] if played.stopped else []
        if loads and call.empties:
            excused.append(RESET_UNDER_LOADS)
        if call.pausing:
            excused.append(IN_A_PAUSE)
        yield holds_if(not call.failure) or because(
            reason("calls", "a client has called {method}", method=call.method),
            reason("fails", "the answer is: {failure}", failure=call.failure),
            excuses=excused,
        )


@check(
    "the loop of an engine that is to end comes to its end",
    origin="EngineCoreProc._handle_shutdown",
    severity=Severity.HANG,
)
def stopped_engine_ends(played: Played) -> Iterator[Judged]:
    """An engine that is told to end answers or aborts its requests, and ends."""
    if not played.stopped:
        return
    yield holds_if(played.exited) or because(
        reason("stopped", "the engine is to end, and no transfer is late"),
        reason("goes_on", "its loop goes on"),
    )


@check(
    "while a pause is complete, nothing is computed",
    origin="EngineCoreProc.pause_scheduler; vllm#44483",
    severity=Severity.WRONG_TOKENS,
)
def pause_computes_nothing(played: Played) -> Iterator[Judged]:
    """While an engine is paused, its weights may be exchanged and its memory may be given up. So a
    pause is complete only when no step is in flight, and no step has tokens until it ends. An
    engine that sleeps has given up its memory: after one part comes back, nothing may be computed
    before the other parts do (vllm#44483)."""
    yield holds(sum(wait.paused for wait in played.waits))
    for tokens in played.computed:
        yield holds_if(not tokens) or because(
            reason("complete", "a client was answered that the engine is paused"),
            reason(
                "computes", "before the pause ends, a step computes {tokens} tokens", tokens=tokens
            ),
        )
    for tokens in played.asleep:
        yield holds_if(not tokens) or because(
            reason("asleep", "a part of the memory of the workers is given up: the engine sleeps"),
            reason("begins", "a step computes {tokens} tokens", tokens=tokens),
        )
    for steps in played.settled:
        yield holds_if(not steps) or because(
            reason("settles", "the engine takes a pause to be complete"),
            reason("steps", "{steps} steps are in flight", steps=steps),
        )


@check(
    "a step has no more tokens, and slots of drafts, than it may have",
    origin="Scheduler.schedule; vllm#34898, vllm#51725",
    severity=Severity.CRASH,
)
def step_fits_its_budget(played: Played) -> Iterator[Judged]:
    """The inputs of a step lie in buffers for `max_num_batched_tokens` tokens. Some drafters need
    further slots there for each request of the step (vllm#34898)."""
    most = played.plan.chunk_tokens
    for one in played.steps:
        yield holds_if(one.tokens + one.slots * one.requests <= most) or because(
            reason("budget", "a step has room for {count} tokens", count=most),
            reason(
                "computes",
                "it computes {count} tokens of {requests} requests with {slots} slots each",
                count=one.tokens,
                requests=one.requests,
                slots=one.slots,
            ),
        )


@check(
    "the front of an engine knows the sizes that its start came to",
    origin="MPClient; vllm#39102, vllm#42967",
    severity=Severity.HANG,
)
def front_knows_its_engine(played: Played) -> Iterator[Judged]:
    """What an engine finds at its start may differ from what its user asked for: the largest length
    that the memory has room for, the tokens of a block. The front of the engine is another process.
    Unless it receives these, it lets requests pass that wait for ever (vllm#39102), and reports
    other sizes than the engine has (vllm#42967)."""
    for one in played.known:
        yield holds_if(one.by_front == one.of_engine) or because(
            reason("started", "{what}: the engine has {count}", what=one.what, count=one.of_engine),
            reason("knows", "its front knows of {count}", count=one.by_front, feature=one.what),
        )


@check(
    "when a request ends, its prefill node is notified",
    origin="NixlBaseConnectorScheduler.request_finished; vllm#41269",
    severity=Severity.LEAK,
)
def ended_load_frees_its_prefill(played: Played) -> Iterator[Judged]:
    """A prefill node keeps the blocks of a request until the decode node has read them, or notifies
    it that it will not. The prefill node must also be notified of a request that ends before it is
    admitted, or that the front refuses (vllm#41269). An engine that is told to end is an exception,
    because its peers see that it ends."""
    for wait in played.waits:
        yield holds(not wait.unfreed)
        for name in wait.unfreed:
            yield because(
                reason("ended", "{request} has ended on this engine, or was refused"),
                idle(wait),
                reason("keeps", "its prefill node was not notified, and keeps its blocks"),
                excuses=[*_why_it_waits(wait), *[TOLD_TO_END] * played.stopped],
                request=name,
            )


@check(
    "the loop waits for a message only if every request has its end",
    origin="EngineCoreProc.has_work; Scheduler.has_requests",
    severity=Severity.HANG,
)
def idle_engine_has_no_waiting_request(played: Played) -> Iterator[Judged]:
    """An engine waits for a message when it has nothing to do. A request that is left then has to
    wait until another one happens to arrive."""
    waits = reason("waits", "{request} has no end yet")
    return _nothing_is_left(played, lambda wait: wait.waiting, waits)


@check(
    "the loop waits for a message only if it has the output of every step",
    origin="EngineCore.step_with_batch_queue",
    severity=Severity.HANG,
)
def idle_engine_has_every_output(played: Played) -> Iterator[Judged]:
    """With several steps in flight, outputs are still to come when nothing more is scheduled. If
    the engine waits for a message instead, no client gets its last tokens; this applies to a paused
    engine too."""
    for wait in played.waits:
        yield holds_if(not wait.steps) or because(
            idle(wait),
            reason(
                "steps", "{steps} steps are in flight, whose output nobody took", steps=wait.steps
            ),
        )


@check(
    "the loop waits for a message only if every KV event was published",
    origin="Scheduler.update_from_output; aibrix#2287",
    severity=Severity.LOST_PERFORMANCE,
)
def idle_engine_has_published(seen: Played | Unpublished) -> Iterator[Judged]:
    """Events are published with the output of a step. Those of what happens outside of a step, as
    when a client empties the cache of an idle engine, may wait for the next one: until another
    request happens to arrive, routers send requests here for what is gone (aibrix#2287). A
    connector has events of its own, of each of its tiers."""
    if isinstance(seen, Unpublished):
        nothing_to_do = reason("nothing_to_do", "the engine says that it has nothing more to do")
        yield _published(nothing_to_do, seen.events, "connector")
        return
    for wait in seen.waits:
        if wait.number or not wait.unpublished:
            yield _published(idle(wait), wait.unpublished, "prefix cache")


def _published(waits: Reason, events: int, whose: str) -> Judged:
    """Whether no event is queued when an engine waits."""
    return holds_if(not events) or because(
        waits,
        reason(
            "queued",
            "{events} KV events of its {whose} are queued, which no subscriber got",
            events=events,
            whose=whose,
            feature=f"of its {whose}",
        ),
    )


@check(
    "the loop waits for a message only if every transfer was reported",
    origin="Scheduler.has_requests; vllm#43433",
    severity=Severity.LEAK,
)
def idle_engine_awaits_no_transfer(played: Played) -> Iterator[Judged]:
    """Workers report the end of a transfer in a step. An engine that waits for a message while a
    transfer goes on never learns of its end, and the blocks stay allocated (vllm#43433)."""
    goes_on = reason("transfers", "the workers have not reported the transfer of {request}")
    return _nothing_is_left(played, lambda wait: wait.transfers, goes_on)


@check(
    "the loop waits for a message only if the workers know which requests have ended",
    origin="Scheduler.finished_req_ids",
    severity=Severity.LEAK,
)
def workers_forget_ended_requests(played: Played) -> Iterator[Judged]:
    """Workers keep the state of a request until a step says that it has ended. An engine without
    requests has to make one more step for this."""
    keeps = reason("keeps", "the workers have the state of {request}, which has ended")
    return _nothing_is_left(played, lambda wait: wait.ended, keeps)


@check(
    "a mask of structured output knows all tokens before its own",
    origin="EngineCore.step_with_batch_queue; Scheduler.get_grammar_bitmask; vllm#44993",
    severity=Severity.WRONG_TOKENS,
)
def mask_knows_every_token(played: Played) -> Iterator[Judged]:
    """With structured output, a token is sampled with a mask that the grammar makes for its
    position, after it has accepted all earlier tokens that follow the reasoning. With several steps
    in flight, these tokens arrive late, and the mask has to wait for them; with drafts, reasoning
    may end inside a step (vllm#44993). A mask for another position lets a token pass that the
    grammar forbids."""
    for one in played.requests:
        for before, knew in enumerate(one.masks):
            if knew is not None:
                yield holds_if(knew == before) or because(
                    _received(before),
                    reason("knew", "the grammar had accepted {knew} tokens then", knew=knew),
                    request=one.name,
                )


@check(
    "after the reasoning, each token of structured output is sampled with a mask",
    origin="StructuredOutputManager.grammar_bitmask; vllm#44006",
    severity=Severity.WRONG_TOKENS,
)
def token_has_its_mask(played: Played) -> Iterator[Judged]:
    """A client that asks for structured output gets it for each token after the reasoning. A token
    that was sampled without a mask may be one that the grammar forbids: the answer is no longer of
    the form that was asked for, or the request ends with an error (vllm#44006)."""
    for one in played.requests:
        for before, knew in enumerate(one.masks):
            yield holds_if(knew is not None) or because(
                _received(before),
                reason(
                    "had_no_mask",
                    "this one was sampled without a mask of its grammar",
                    # Where reasoning ends, and behind it, masks are made by different code.
                    feature="a later token" if before else "the first token",
                ),
                request=one.name,
            )
