"""Statistics: what an engine reports of itself."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.invariants.loop import idle, nothing_left
from kvproof.model.because import Excuse, Judged, because, choice, holds_if, reason, release
from kvproof.model.facts.connectors import CacheStatistics, PromptReported, TokensLookedUp
from kvproof.model.facts.loop import Did, LoopWait, Played
from kvproof.model.severity import Severity


@check(
    "the statistics of prefix caches count each request once",
    origin="PrefixCacheStats.record; vllm#48860",
    severity=Severity.WRONG_REPORT,
    apart="",
)
def statistics_count_once(fact: CacheStatistics) -> Iterator[Judged]:
    """The hit rate of a prefix cache is what operators look at. A connector may have the scheduler
    ask again later, and an admission may fail; a request is still one request (vllm#48860). One
    whose load failed gives its blocks back and may be looked up once more. One that ends before its
    admission may not be looked up at all."""
    yield holds_if(fact.looked_up == fact.arrived, fact.looked_up) or because(
        reason(
            "arrived",
            "{arrived} requests have arrived, and {failed} loads failed",
            arrived=fact.arrived,
            failed=fact.failed,
        ),
        reason(
            "counted",
            "the statistics of the {where} prefix cache count {counted} requests",
            where=fact.where,
            counted=fact.looked_up,
        ),
        excuses=_why_not_once(fact),
    )


def _why_not_once(fact: CacheStatistics) -> Iterator[Excuse]:
    if fact.looked_up < fact.arrived:
        yield choice("a request that ends before its admission is not looked up")
    elif fact.looked_up <= fact.arrived + fact.failed:
        yield choice("a request whose load failed is looked up again")


# What is told ends with a whole block, and is what attention has, of which a state may be missing.
UNLIKE = choice("a hit may be unlike what the connector was told of it")


@check(
    "the statistics of prefix caches count the tokens that were looked up, and those that were hit",
    origin="Scheduler.schedule; vllm#30522",
    severity=Severity.WRONG_REPORT,
    apart="",
)
def statistics_count_tokens(fact: TokensLookedUp) -> Iterator[Judged]:
    """A hit rate is a share of tokens. A connector is asked for the tokens that the engine's own
    cache does not have: if all tokens of a prompt count there, its hit rate looks lower than it is
    (vllm#30522)."""
    yield holds_if(fact.counted == fact.admitted) or because(
        reason(
            "were_looked_up",
            "requests looked up {asked} tokens in the {where} prefix cache, which had {hit}",
            where=fact.where,
            asked=fact.admitted[0],
            hit=fact.admitted[1],
        ),
        reason(
            "statistics",
            "its statistics count {asked} tokens, and {hit} of them as hit",
            asked=fact.counted[0],
            hit=fact.counted[1],
        ),
        excuses=(UNLIKE,) * fact.unlike,
    )


@check(
    "the tokens that an engine reports as new in its cache are whole blocks that it computed",
    origin="KVCacheManager.estimate_cached_tokens",
    severity=Severity.WRONG_REPORT,
)
def reported_tokens_are_cached(fact: PromptReported) -> Iterator[Judged]:
    """A client pays for tokens that are written to a cache, and sees how many there were. They are
    those of the prompt that steps have computed and whose blocks are cached."""
    if fact.cached is None or not fact.whole:
        return  # cannot be judged: nothing is reported, or nothing is cached
    found = fact.local + fact.external
    yield holds_if(max(fact.whole - found, 0) <= fact.cached <= fact.computed) or because(
        reason(
            "whole_blocks",
            "whole blocks have the first {whole} of {tokens} tokens of {request}, and {found} were "
            "cached before",
            whole=fact.whole,
            tokens=fact.tokens,
            found=found,
        ),
        reason(
            "reports_new",
            "the engine reports {cached} of {computed} computed tokens as new in its cache",
            cached=fact.cached,
            computed=fact.computed,
        ),
        excuses=(choice("not each cache group caches each whole block"),) * fact.other,
        request=fact.request,
    )


LAST_TOKEN = choice("all of its tokens were cached, and the last one is computed again")


@check(
    "the cached tokens that an engine reports of a prompt are those of one admission, and the "
    "rest was computed",
    origin="Scheduler.update_from_output; vllm#37460",
    severity=Severity.WRONG_REPORT,
)
def prompt_statistics_add_up(fact: PromptReported) -> Iterator[Judged]:
    """Operators see from where the tokens of prompts come, as counters by source, and a client sees
    how many of its prompt were cached. A preempted request is looked up again and may find more:
    parts of two look-ups do not fit together, and a counter would have to go down (vllm#37460). Of
    a prompt that was loaded whole, the last token is computed again, and may count as such."""
    cached = fact.local + fact.external
    whole = cached + fact.computed == fact.tokens
    loaded_all = cached + 1 == fact.tokens and (fact.local, fact.external + 1) in fact.admitted
    yield holds_if(whole and (fact.local, fact.external) in fact.admitted) or because(
        reason(
            "admitted",
            "{request} has a prompt of {tokens} tokens, and was admitted with (local, external) "
            "cached tokens: {admitted}",
            tokens=fact.tokens,
            admitted=fact.admitted,
        ),
        reason(
            "reports",
            "the engine reports {local} local, {external} external and {computed} computed tokens",
            local=fact.local,
            external=fact.external,
            computed=fact.computed,
        ),
        excuses=[LAST_TOKEN] if whole and loaded_all else (),
        request=fact.request,
    )


@check(
    "the exported numbers of tokens are those of what was computed and answered",
    origin="PrometheusStatLogger.record; vllm#43346",
    severity=Severity.WRONG_REPORT,
)
def metrics_add_up(played: Played) -> Iterator[Judged]:
    """Operators see from metrics what an engine does: how many tokens it answers, and how many its
    steps compute. A token of a prompt that was found in a cache or loaded is in no step
    (vllm#43346): counted there, an engine looks busier than it is. The last token of an answer is
    sampled and never computed, so that a step may seem to have one token more for each answer. For
    an idle engine they must show no request and no block, because the last recorded values stay on
    display."""
    did, says = played.did, played.exported
    if did is None or says is None:
        return
    yield holds_if(says.answered == did.answered) or because(
        reason("received", "clients received {tokens} tokens", tokens=did.answered),
        reason(
            "answers",
            "the metrics say that {tokens} were answered",
            tokens=says.answered,
            feature="answers",
        ),
    )
    last = played.waits[-1] if played.waits else None
    # A loop that was stopped while it ran cannot be judged: it may have more to export.
    if last is None or not nothing_left(last) or played.busy:
        pass
    else:
        yield holds_if(not any(says.now)) or because(
            idle(last),
            reason("left", "no request, step or transfer is left, and every block is free"),
            reason(
                "shows",
                "the metrics show {running} running and {waiting} waiting requests, and {part} of "
                "the blocks in use",
                running=int(says.now[0]),
                waiting=int(says.now[1]),
                part=f"{says.now[2]:.0%}",
                feature="an idle engine",
            ),
        )
    yield holds_if(says.computed == did.computed) or because(
        reason(
            "computed",
            "steps computed {tokens} tokens, and {requests} requests got an answer",
            tokens=did.computed,
            requests=did.requests,
        ),
        reason(
            "steps",
            "the metrics say that steps had {tokens}",
            tokens=says.computed,
            feature="steps",
        ),
        excuses=_why_other_steps(says.computed - did.computed, did),
    )


def _why_other_steps(more: int, did: Did) -> Iterator[Excuse]:
    """The excuses of metrics that count so many `more` tokens than steps computed. A request that
    is preempted before its first token may then find in a cache what it was to compute; what its
    first admission found counts."""
    if more < 0:
        yield choice("tokens of rejected drafts, and of requests that are gone, do not count")
    elif more <= did.requests:
        yield release("the last token of an answer counts as a token of a step")
    elif did.preempted:
        yield choice("a request that was preempted may find in a cache what it was to compute")


@check(
    "what an engine counts is in the statistics that its user receives, once",
    origin="Scheduler.update_from_output; LLMEngine.step; vllm#43877, vllm#48668",
    severity=Severity.WRONG_REPORT,
)
def statistics_reach_their_reader(played: Played) -> Iterator[Judged]:
    """Operators see the transfers of an engine, and how often its prefix cache hits, as statistics.
    Both sides of a connector count: the scheduler asks its own in each step, and adds what the
    workers report (vllm#43877). A step that gives no client a token has statistics too
    (vllm#48668). Statistics that are not passed on, or not taken before the engine waits, are
    missing."""
    for wait in played.waits:
        for front, received in wait.received:
            ends = received.transfers != wait.noted.transfers
            yield holds_if(received == wait.noted) or because(
                idle(wait),
                reason(
                    "counted",
                    "the engine has counted {transfers} ends of transfers and {lookups} looked "
                    "up requests",
                    transfers=wait.noted.transfers,
                    lookups=wait.noted.lookups,
                ),
                reason(
                    "received",
                    "the statistics that {front} passed on had {transfers} and {lookups}",
                    front=front,
                    transfers=received.transfers,
                    lookups=received.lookups,
                    feature=f"{'transfers' if ends else 'look-ups'} by {front}",
                ),
                excuses=_why_not_received(wait),
            )


def _why_not_received(wait: LoopWait) -> Iterator[Excuse]:
    if wait.paused:
        yield choice("a client has paused the engine")
    if wait.steps:
        yield choice("a step is in flight, and its statistics come with its output")
    if not wait.number:
        yield choice("the engine has ended, and nobody reads its statistics any more")
