"""Stores: what a connector keeps, offers again, forgets and closes."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.invariants.engines import message_of
from kvproof.invariants.slots import content
from kvproof.model.because import Excuse, Judged, because, choice, holds, holds_if, reason, release
from kvproof.model.facts.connectors import (
    AskedAfterReset,
    Closed,
    Copied,
    CopiedBytes,
    EngineGone,
    LookedUp,
    Remembered,
    RequestsGone,
    ResetAnswered,
    Since,
    StateSaved,
    Stored,
    TierCalled,
    TierIdle,
    TierLoads,
    TierNotified,
)
from kvproof.model.severity import Severity

NOT_OFFERED: dict[Since, Excuse] = {
    "asked later": choice("the connector asks to be asked again later"),
    "computes all": choice("the request must compute its whole prompt"),
    "may not keep": choice("the connector does not say that it keeps each prompt"),
    "no prefix cache": choice("the engine has no prefix cache"),
    "failed": choice("the memory behind the connector lost something or failed"),
    "states": choice("a cache group has states, and not each of them is stored"),
    "window": choice("of a window, a store need only keep what the same prompt resumes with"),
    "drafter": choice("a drafter computes the last block of a hit again"),
    "answer": choice("the connector is not set to store answers"),
    "runs": choice("the request that computed the tokens has not ended"),
    "aborted": choice("the request that computed the tokens did not end well"),
    "not idle": choice("the engine was not idle since the tokens were computed"),
    "freed": choice("the blocks behind a window were needed before they were stored"),
    "reset": choice("the connector's cache was reset since the tokens were computed"),
    "restart": choice("another process has started an engine since the tokens were computed"),
}
"""Why a connector may offer fewer tokens than were computed before."""


@check(
    "a prompt whose blocks were computed before is offered again",
    origin="get_num_new_matched_tokens; vllm#48596, vllm#48911",
    severity=Severity.LOST_PERFORMANCE,
)
def stored_prefix_is_offered(fact: LookedUp) -> Iterator[Judged]:
    """A store is there so that a prompt is not computed twice (vllm#48596, vllm#46865). The author
    of a connector may say that it keeps every whole block of an ended prompt: then the same prompt
    is offered once the engine had nothing more to do. Of other connectors, and where something has
    happened since, a shorter offer has an excuse."""
    short = [each for each in fact.alike if each.tokens > fact.tokens]
    if not short:
        yield holds()
        return
    plainest = min(short, key=lambda each: (len(each.since), -each.tokens))
    yield because(
        reason(
            "was_computed",
            "an earlier request computed the first {whole} tokens of {request}",
            whole=plainest.tokens,
        ),
        reason("offers", "the connector offers {tokens} of them", tokens=fact.tokens),
        excuses=(NOT_OFFERED[each] for each in plainest.since),
        request=fact.request,
    )


@check(
    "after a reset of its cache, a connector offers nothing that was stored before",
    origin="reset_cache; Scheduler.reset_connector_cache",
    severity=Severity.WRONG_TOKENS,
    apart="connectors",
)
def reset_forgets(fact: AskedAfterReset) -> Iterator[Judged]:
    """`reset_cache` is called when what is stored has become wrong: after an update of the weights.
    A connector that says that it has reset its cache, and then offers a prefix that was stored
    before, gives answers of the old weights."""
    yield holds_if(not fact.tokens or fact.end <= fact.fresh) or because(
        reason(
            "was_reset",
            "the connector's cache was reset, and steps computed {fresh} tokens of {request} since",
            fresh=fact.fresh,
        ),
        reason(
            "offers",
            "the connector offers {tokens} tokens of {request}, up to token {end}",
            tokens=fact.tokens,
            end=fact.end,
        ),
        excuses=_after_reset(fact),
        request=fact.request,
    )


def _after_reset(fact: AskedAfterReset) -> Iterator[Excuse]:
    """Why a connector may offer what steps have not computed since a reset."""
    if not fact.idle:
        yield choice("requests ran during the reset, and store what they had computed")
    if not fact.done:
        # Nobody gains by what stays: a user that resets a store wants it empty.
        yield release("the connector does not say that it has reset its cache")
    if fact.steps:
        yield release("steps computed other tokens since the reset")


@check(
    "a reset of the connector's cache raises no exception",
    origin="EngineCore.reset_prefix_cache; vllm#48102",
    severity=Severity.WRONG_REPORT,
    apart="connectors",
)
def reset_is_carried_out(fact: ResetAnswered) -> Iterator[Judged]:
    """A reset of the connector's cache that raises an exception is not carried out: the engine
    answers the call with the error and goes on, and the connector still offers what a user wanted
    to be gone. A connector that cannot reset its cache says so (`NotImplementedError`)."""
    if not fact.connector:
        return  # cannot be judged: the connector is not asked
    if fact.death is None:
        yield holds()
        return
    where = fact.death.function
    yield because(
        reason("reset_raised", "a reset raised an exception in {where}", where=where),
        message_of(fact.death),
    )


@check(
    "an engine says that it has reset its cache only if its connector has not refused to",
    origin="Scheduler.reset_connector_cache",
    severity=Severity.WRONG_REPORT,
    apart="connectors",
)
def reset_is_not_feigned(fact: ResetAnswered) -> Iterator[Judged]:
    """A connector refuses to reset its cache while it copies, for example. Who is told that all is
    reset loads new weights, and is served KV of the old ones."""
    if not fact.connector or fact.cannot or fact.death is not None:
        return  # cannot be judged: the connector gives no answer
    yield holds_if(not (fact.refused and fact.done)) or because(
        reason("connector_refuses", "the connector refuses to reset its cache"),
        reason("told_as_done", "the engine says that the reset is done"),
    )


@check(
    "a file of hidden states has those of each token of the prompt of its request",
    origin="ExampleHiddenStatesConnector; vllm#45849, vllm#46301",
    severity=Severity.WRONG_TOKENS,
)
def saved_states_are_of_the_prompt(fact: StateSaved) -> Iterator[Judged]:
    """The client of a request gets the path of a file, and trains or judges with what is in it. A
    file of another block, or of another request, is not noticed: the numbers look alike
    (vllm#45849, where states were read by the block table of another cache group)."""
    yield holds_if(fact.found == fact.expected) or because(
        reason(
            "ended_with_states",
            "{request} has ended, and token {token} of its prompt has {content}",
            token=fact.token,
            content=content(fact.expected),
        ),
        reason("file_has", "its file has {content} there", content=content(fact.found))
        if fact.there
        else reason("file_ends", "its file has nothing there"),
        request=fact.request,
    )


@check(
    "a copy out of a block waits for the step that computes the block",
    origin="wait_for_save, get_finished; vllm#46278",
    severity=Severity.WRONG_TOKENS,
)
def copies_follow_the_model(fact: Copied) -> Iterator[Judged]:
    """Steps run on a stream of their own. A copy on another stream that does not wait for the step
    that computes a block may read what was there before, and keeps it under the key of the new
    tokens."""
    yield holds(fact.number - len(fact.early))
    for each in fact.early:
        yield because(
            reason(
                "computes",
                "a step computes block {block} of {layer}",
                block=each.block,
                layer=each.layer,
            ),
            reason("not_after", "a copy of it does not wait for that step"),
        )


@check(
    "what is being copied out of a KV cache is not copied again",
    origin="vllm#41289",
    severity=Severity.LOST_PERFORMANCE,
)
def copies_are_made_once(fact: Copied) -> Iterator[Judged]:
    """A block that is being stored needs no second store: it takes room from what others stored,
    and the link to the memory has to carry it again (vllm#41289)."""
    yield holds(fact.number - len(fact.again))
    for each in fact.again:
        yield because(
            reason(
                "under_way", "a copy of {size} bytes of a KV cache is under way", size=each.size
            ),
            reason("again", "the same bytes are copied again"),
            excuses=_why_again(fact, each),
        )


def _why_again(fact: Copied, copied: CopiedBytes) -> Iterator[Excuse]:
    """Why the same bytes may be copied once more."""
    if not fact.by_block:
        yield choice("the connector has keys for several blocks together, which may share one")
    if fact.parts:
        yield choice("the beginning of a block has a key of its own")
    if copied.reset:
        yield choice("the connector's cache was reset, and it has forgotten its copies")


@check(
    "a store is sent no value whose key it has",
    origin="KVConnectorBase_V1.wait_for_save, get_finished",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def keys_are_stored_once(fact: Stored) -> Iterator[Judged]:
    """A value that a store has takes the link to it once more, and the store drops it. An ideal,
    because two requests or two engines may send a value at the same time, and looking first takes
    time too: a connector that sends more of them than before is told beside its base."""
    yield holds(fact.keys - fact.again)
    if fact.again:
        yield because(
            reason("sent", "a store was sent the values of {keys} keys", keys=fact.keys),
            reason("had", "it had {again} of them", again=fact.again),
            excuses=(choice("others may send a value at the same time"),),
        )


@check(
    "a tier of a store is asked once for a value",
    origin="SecondaryTierManager.submit_load, TieringOffloadingManager",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def tiers_are_asked_once(fact: TierLoads) -> Iterator[Judged]:
    """What comes from a slow tier is kept in the fast one before it. An ideal, because the fast one
    has less room, and a load may fail: a store that asks more often than before for what it has had
    is told beside its base."""
    yield holds(fact.keys - fact.again)
    if fact.again:
        yield because(
            reason("asked", "a tier is asked for the values of {keys} keys", keys=fact.keys),
            reason("before", "it was asked for {again} of them before", again=fact.again),
            excuses=(choice("the value was evicted since, or its load failed"),),
        )


@check(
    "nothing is loaded from a lower tier for a request that wants nothing of it",
    origin="kv_load_tiers in kv_transfer_params",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def tiers_are_asked_as_wanted(fact: TierLoads) -> Iterator[Judged]:
    """A user who needs an answer soon says that no slow tier is to be asked. An ideal, and its
    excuse a release: a vLLM from before this wish has no fault, and one that loses it has."""
    yield holds_if(not fact.unwanted) or because(
        reason("wants_none", "a request wants nothing of the tiers below the first"),
        reason("asked", "a tier is asked for the values of {keys} keys", keys=fact.keys),
        excuses=(release("this vLLM does not know the wish"),),
    )


@check(
    "a tier of a store that is notified of the end of a request was notified of the request",
    origin="OffloadingManager, SecondaryTierManager: on_new_request; vllm#46284",
    severity=Severity.LEAK,
)
def tier_is_notified_of_the_request(fact: TierNotified) -> Iterator[Judged]:
    """A tier keeps data for each request from its start to its end. If it was never notified of the
    start, it finds no data when it is notified of the end (vllm#46284)."""
    yield holds_if(fact.begun) or because(
        reason("never", "{tier} was never notified of {request}", tier=fact.tier),
        reason("ended", "it is notified that the request ended"),
        # No choice: a tier that keeps nothing gains nothing by it, and one that does needs both.
        excuses=() if fact.of_starts else (release("the tier is notified of no start at all"),),
        request=fact.request,
    )


@check(
    "a tier of a store is notified of the end of a request after all that is submitted for it",
    origin="OffloadingManager, SecondaryTierManager: on_request_finished; vllm#45823",
    severity=Severity.LEAK,
)
def tier_is_notified_last(fact: TierCalled) -> Iterator[Judged]:
    """When a tier is notified that a request has ended, it drops what it keeps for that request.
    Work that is submitted afterwards makes this data again, and no later notice removes it
    (vllm#45823)."""
    yield holds_if(not fact.ended) or because(
        reason("notified_of_end", "{tier} was notified that {request} has ended", tier=fact.tier),
        reason("submits", "then {call} is called for it", call=fact.call),
        request=fact.request,
    )


@check(
    "a tier of a store that was notified of a request is notified of its end",
    origin="OffloadingManager, SecondaryTierManager: on_new_request, on_request_finished",
    severity=Severity.LEAK,
)
def tier_is_notified_of_the_end(fact: TierIdle) -> Iterator[Judged]:
    """A tier keeps something for each request of which it was notified. Without a notice of the
    request's end, it keeps this for ever."""
    yield holds(fact.ended)
    for name in fact.left:
        yield because(
            reason("notified", "{tier} was notified of {request}", tier=fact.tier),
            reason("never", "the engine is idle, and it was not notified that the request ended"),
            request=name,
        )


@check(
    "what a connector opened beside the engine is closed when both its sides are shut down",
    origin="shutdown; vllm#45206",
    severity=Severity.LEAK,
)
def closed_at_shutdown(fact: Closed) -> Iterator[Judged]:
    """A connector may open named files in shared memory, and clients of stores with memory of their
    own. If they stay open after the shutdown of an engine, a process that starts another engine has
    them twice (vllm#45206)."""
    yield holds_if(not fact.left, fact.opened) or because(
        reason("ended", "the workers and the scheduler were shut down"),
        reason("open", "{what}: {number} still open", what=fact.what, number=fact.left),
    )


@check(
    "a connector forgets an engine that is gone for long when it has met the next one",
    origin="engine_ttl of NIXL; vllm#44424",
    severity=Severity.LEAK,
)
def gone_engines_are_forgotten(fact: EngineGone) -> Iterator[Judged]:
    """Engines come and go: a router starts others where some have ended. If a connector keeps data
    about engines that are gone, the memory of the host fills up (vllm#44424). It may keep the data
    for some time (`engine_ttl` of NIXL), and until it meets the engine that took the place."""
    if not fact.where:
        yield holds()
    for where in fact.where:
        yield because(
            reason(
                "gone",
                "an engine ended {gone_s} s before the next one in its place began",
                gone_s=fact.gone_s,
            ),
            reason("known", "after a load from that one, {where} still has it", where=where)
            if fact.met
            else reason("still", "{where} still has it", where=where),
            excuses=_why_known(fact),
        )


def _why_known(fact: EngineGone) -> Iterator[Excuse]:
    """Why a connector may still know an engine that is gone."""
    if fact.gone_s <= fact.kept_s:
        yield choice("the engine is gone for less time than the connector keeps what it knows")
    if not fact.met:
        yield choice("the connector has not met the engine that took the place")


@check(
    "a connector of an idle engine remembers no request that is gone",
    origin="KVConnectorBase_V1.get_finished; vllm#26012",
    severity=Severity.LEAK,
)
def gone_requests_are_forgotten(fact: RequestsGone) -> Iterator[Judged]:
    """Each side of a connector keeps something under the name of a request: its blocks, its
    deadline, who waits for it. P was not told that a request was aborted, and awaited a read of it
    for ever (vllm#26012). No block is lost by that, so nobody notices, and the memory of the host
    fills up."""
    yield holds(fact.requests - len({each.request for each in fact.remembered}))
    for each in fact.remembered:
        yield because(
            reason("gone", "{steps} steps ago the engine had {request}", steps=each.steps),
            reason("remembers", "it is idle, and {where} still has it", where=each.where),
            excuses=_why_remembered(fact, each),
            request=each.request,
        )


def _why_remembered(fact: RequestsGone, each: Remembered) -> Iterator[Excuse]:
    """Why a connector may remember a request that is gone."""
    if each.steps <= fact.lasts:
        yield choice("the request has ended just now, and a later step may take it away")
    if fact.stand:
        yield choice("the threads behind the connector stand")
    if each.sent:
        yield release("another engine came late for it, or was not needed")
