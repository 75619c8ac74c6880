"""Loads: what a KV connector promises, brings and reports."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.invariants.slots import content, place
from kvproof.model.because import Excuse, Judged, because, choice, holds, holds_if, reason
from kvproof.model.facts.connectors import (
    Begun,
    Holder,
    LoadEnded,
    LoadFailed,
    LoadOver,
    Matched,
    Past,
    Promised,
    SendEnded,
    SlotsRead,
    Written,
    WrittenSlot,
)
from kvproof.model.severity import Severity


@check(
    "when a load is over, each promised token is loaded in each layer",
    origin="get_num_new_matched_tokens, wait_for_layer_load, get_finished; vllm#50558",
    severity=Severity.WRONG_TOKENS,
)
def promised_tokens_are_loaded(fact: LoadOver) -> Iterator[Judged]:
    """The scheduler counts the tokens that a connector promised as computed. If a load pairs blocks
    from the wrong end, ends before its last layer, or brings a token less, the request reads what
    was there before (vllm#50558, vllm#43494, vllm#43516)."""
    wrong = [each for each in fact.slots if each.found != each.expected]
    yield holds(len(fact.slots) - len(wrong))
    for each in wrong:
        yield because(
            reason(
                "promised",
                "the load of {request} promised token {token}, {content}",
                token=each.token,
                content=content(each.expected),
            ),
            reason(
                "holds_after",
                "after the load {place} holds {content}",
                place=place(each.slot),
                content=content(each.found),
            ),
            request=fact.request,
            group=each.slot.group,
            block=each.slot.block,
        )


@check(
    "a connector writes only to slots of a loading request that are still to be filled",
    origin="start_load_kv; update_state_after_alloc",
    severity=Severity.WRONG_TOKENS,
)
def load_stays_in_its_blocks(fact: Written, past: Past) -> Iterator[Judged]:
    """A connector may write to blocks of requests that load, and there only to slots that are still
    to be filled. A late write, or a copy into the wrong block, destroys the KV of another request
    (vllm#46283, vllm#52372)."""
    wrong = [slot for slot in fact.slots if not any(_may_fill(slot, h) for h in slot.holders)]
    yield holds(len(fact.slots) - len(wrong))
    for slot in wrong:
        loading = [each.request for each in slot.holders if each.load is not None]
        owner = next(iter((*reversed(loading), *(each.request for each in slot.holders))), "")
        holder = reason("nobody_has", "no request has this block")
        if owner:
            holder = reason("has_block", "{request} has this block")
        yield because(
            reason(
                "held",
                "{place} held {content}; {holder}, and {loads:names} is loading",
                place=place(slot.slot),
                content=content(slot.held),
                holder=holder,
                loads=past.loads,
            ),
            reason("wrote", "the connector wrote {content} there", content=content(slot.found)),
            request=owner,
            group=slot.slot.group,
            block=slot.slot.block,
        )


def _may_fill(slot: WrittenSlot, holder: Holder) -> bool:
    """Whether the load of a request that has a block may fill a slot of it: the slot of a promised
    token, or one that does not hold what it should. A request whose load ends in a later step
    computes nothing behind it yet."""
    load = holder.load
    if load is None:
        return False
    within = load.later or holder.token < load.start + load.tokens
    promised = load.start <= holder.token and within
    return promised or not slot.attention or slot.held != holder.expected


@check(
    "each slot that a step reads holds the KV of the request's own tokens",
    origin="attention; vllm#49285, vllm#44599",
    severity=Severity.WRONG_TOKENS,
)
def request_reads_its_own_tokens(fact: SlotsRead) -> Iterator[Judged]:
    """An answer is right only if each step reads the KV of the tokens of its own request. Whatever
    goes wrong in a connector, this is what a user notices (vllm#49285, vllm#44599, vllm#43494)."""
    yield holds(fact.right)
    for each in fact.wrong:
        yield because(
            reason("needs", "a step of {request} needs {content}", content=content(each.expected)),
            reason(
                "holds",
                "{place} holds {content}",
                place=place(each.slot),
                content=content(each.found),
            ),
            request=each.request,
            group=each.slot.group,
            block=each.slot.block,
        )


@check(
    "what is loaded into an engine is not loaded again",
    origin="get_num_new_matched_tokens, update_state_after_alloc",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def tokens_are_loaded_once(fact: Promised) -> Iterator[Judged]:
    """The blocks of a load stay in the engine's own cache, and another request with the same prompt
    hits them there. A second load takes the link to the store and blocks once more. An ideal,
    because an engine gives blocks to others, and a request need not wait for the load of another:
    an engine that loads more of them again than before is told beside its base."""
    twice = max(fact.under_way, fact.before)
    if not twice:
        yield holds()
        return
    excuses = []
    if fact.under_way:
        excuses.append(choice("a request need not wait for the load of another"))
    if fact.before:
        excuses.append(choice("the engine may have given the blocks to others since"))
    yield because(
        reason("loads", "{tokens} tokens are loaded for {request}", tokens=fact.tokens),
        reason("twice", "another load of this engine brings {twice} of them", twice=twice),
        excuses=excuses,
        request=fact.request,
    )


@check(
    "nothing is loaded for a request that must compute its whole prompt",
    origin="skip_reading_prefix_cache; vllm#44592",
    severity=Severity.WRONG_TOKENS,
)
def recomputed_prompt_is_not_loaded(fact: Matched | Promised) -> Iterator[Judged]:
    """A request that asks for the log-probabilities of its prompt must compute its whole prompt:
    what is loaded has none. Releases before 0.32 left it to the connector (vllm#44592)."""
    if not fact.computes_all:
        return
    yield holds_if(isinstance(fact, Matched)) or because(
        reason(
            "must_compute", "{request} must compute its whole prompt (skip_reading_prefix_cache)"
        ),
        reason("are_loaded", "{tokens} of its tokens are loaded", tokens=fact.tokens),
        request=fact.request,
    )


@check(
    "a request that must compute its whole prompt begins with its first token",
    origin="skip_reading_prefix_cache; vllm#48860",
    severity=Severity.WRONG_TOKENS,
)
def recomputed_prompt_is_not_reused(fact: Begun) -> Iterator[Judged]:
    """A request that asks for the log-probabilities of its prompt must compute its whole prompt.
    With a connector, the engine's own cache was still read for it beside Mamba (vllm#48860)."""
    if not fact.computes_all:
        return  # cannot be judged: any other request may begin with what a cache has
    yield holds_if(not fact.tokens) or because(
        reason(
            "must_compute", "{request} must compute its whole prompt (skip_reading_prefix_cache)"
        ),
        reason("begins_after", "it begins after {tokens} cached tokens", tokens=fact.tokens),
        request=fact.request,
    )


@check(
    "the number of matched tokens is from 0 to the tokens that are left",
    origin="get_num_new_matched_tokens; Scheduler.schedule",
    severity=Severity.CRASH,
)
def matched_tokens_can_be_loaded(fact: Matched) -> Iterator[Judged]:
    """The scheduler takes the number of matched tokens as it is: it adds it to the computed tokens
    and takes blocks for it. A negative number, or more tokens than the request has, ends the
    engine. A load within the step must leave a token to compute, because a step of no tokens has no
    output. Only tokens can be loaded later (vllm#42289)."""
    if fact.tokens is None:
        yield holds()
        return
    left = fact.request_tokens - fact.computed_tokens
    most = left if fact.later else left - 1
    has = reason(
        "has_tokens",
        "{request} has {tokens} tokens, {computed} computed",
        tokens=fact.request_tokens,
        computed=fact.computed_tokens,
    )
    if not 0 <= fact.tokens <= most and (fact.tokens or fact.later):
        yield because(
            has,
            reason("matches", "the connector matches {tokens} tokens", tokens=fact.tokens),
            request=fact.request,
        )
    elif fact.later and not fact.tokens:
        yield because(
            has,
            reason("loads_nothing_later", "the connector loads 0 tokens in a later step"),
            request=fact.request,
        )
    else:
        yield holds()


@check(
    "the worker reports each transfer once, and only transfers that are under way",
    origin="get_finished; Scheduler._update_from_kv_xfer_finished; vllm#43371, vllm#51595",
    severity=Severity.CRASH,
)
def reports_are_of_known_transfers(fact: LoadEnded | SendEnded, past: Past) -> Iterator[Judged]:
    """The scheduler asserts that a report is about a transfer that it waits for: a load that was
    promised, or a request whose blocks were kept. A report for anything else, or a second one, ends
    the engine or frees blocks twice (vllm#43371, vllm#51595, vllm#46240)."""
    if isinstance(fact, LoadEnded):
        load = past.loads.get(fact.request)
        if load is None or not load.later:
            yield because(
                reason("no_load", "no load of {request} is under way"),
                reason("load_ended", "the worker reports that it has ended"),
                request=fact.request,
            )
        else:
            yield holds()
    else:
        yield holds_if(fact.request in past.sends) or because(
            reason("keeps_no_blocks", "the connector does not keep the blocks of {request}"),
            reason("send_ended", "the worker reports that they are sent"),
            request=fact.request,
        )


@check(
    "blocks that are reported as failed belong to requests that are loading",
    origin="get_block_ids_with_load_errors",
    severity=Severity.CRASH,
)
def failed_blocks_are_of_loads(fact: LoadFailed) -> Iterator[Judged]:
    """vLLM computes the tokens of failed blocks again, in the requests that have them. A connector
    that names other blocks makes requests lose what they computed, and one that names none for a
    load that failed leaves wrong KV in place (vllm#39732, vllm#50687)."""
    others = sorted(set(fact.blocks) - set(fact.loading))
    yield holds_if(not others) or because(
        reason("loading", "the blocks of loading requests are {loading}", loading=fact.loading),
        reason(
            "reported_failed",
            "the worker reports that the load of blocks {others} failed",
            others=others,
        ),
        block=others[0],
    )


@check(
    "a load does not fail while nothing behind the connector was lost or failed",
    origin="get_num_new_matched_tokens, get_block_ids_with_load_errors",
    severity=Severity.CRASH,
)
def loads_do_not_fail(fact: Promised | LoadEnded | LoadFailed, past: Past) -> Iterator[Judged]:
    """A connector matches only tokens that are there at the time of the call. So a load succeeds
    while what is behind the connector loses nothing and does not fail. If it fails, vLLM ends the
    request with an error (`kv_load_failure_policy` "fail", the default)."""
    if isinstance(fact, Promised):
        # a worker reports a load that fails, and not each that succeeds
        yield holds(not past.may_fail)
        return
    promised = reason("was_there", "what the connector promised was there at the time of its call")
    if isinstance(fact, LoadEnded):
        if fact.failed:
            yield because(
                promised,
                reason("load_failed", "the worker reports that the load of {request} failed"),
                excuses=_why_failed(past, fact.request in past.reset),
                request=fact.request,
            )
    else:
        yield because(
            promised,
            reason(
                "blocks_failed",
                "the worker reports that the load of blocks {blocks} failed",
                blocks=fact.blocks,
            ),
            excuses=_why_failed(past, bool(past.reset)),
            block=fact.blocks[0],
        )


def _why_failed(past: Past, reset: bool) -> Iterator[Excuse]:
    """Why a load may fail."""
    if past.may_fail:
        yield choice("the memory behind the connector may have lost its content, or fail")
    if reset:
        yield choice("the connector's cache was reset during a load")
