"""What is left when nothing more arrives."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds, holds_if, reason
from kvproof.model.facts.connectors import Owed, Past, RequestsEnded, Unfreed, Waits
from kvproof.model.severity import Severity


@check(
    "a request ends when nothing more arrives and the engine runs on",
    origin="get_num_new_matched_tokens, get_finished; vllm#49328",
    severity=Severity.HANG,
)
def every_request_ends(fact: Waits | RequestsEnded, past: Past) -> Iterator[Judged]:
    """A request that waits for a load is served when the load is reported. If the connector answers
    "ask again later" for ever, or never reports a load, the request hangs (vllm#49328,
    vllm#53903)."""
    if isinstance(fact, RequestsEnded):
        yield holds(fact.number)
        return
    waits = reason(
        "waits",
        "{request} is {status}, and {steps} steps brought it no further",
        status=fact.status,
        steps=fact.steps,
    )
    if fact.endless:
        waits = reason(
            "goes_round",
            "{request} is {status}, and {steps} steps, in which requests went on and back, brought "
            "it to no end",
            status=fact.status,
            steps=fact.steps,
        )
    load = past.loads.get(fact.request)
    if load is not None:
        why = reason(
            "never_reported",
            "the load of {tokens} tokens that it waits for was never reported",
            tokens=load.tokens,
        )
    elif fact.behind:
        why = reason("behind", "it is behind {first}, which lacks a copy", first=fact.behind)
    elif fact.lacks_copies:
        why = reason(
            "no_copy",
            "it needs {needs} blocks more, and {copies} for a copy of its state; {free} are free, "
            "and {others} others have blocks",
            needs=fact.needs,
            copies=fact.copies,
            free=fact.free,
            others=len(fact.others),
        )
    elif loading := [name for name in fact.others if name in past.loads]:
        why = reason(
            "beside_load",
            "no load of it is under way; {first} has blocks, and its load was never reported",
            first=loading[0],
        )
    elif kept := [name for name in fact.others if name in past.sends]:
        why = reason(
            "beside_send",
            "no load of it is under way; {first} has ended, and the connector keeps its blocks",
            first=kept[0],
        )
    else:
        why = reason("no_load", "no load of it is under way")
    yield because(waits, why, request=fact.request)


@check(
    "when nothing more arrives, every block is free at last",
    origin="request_finished, get_finished; vllm#42611, vllm#43742",
    severity=Severity.LEAK,
)
def kept_blocks_are_given_back(fact: Unfreed | Owed, past: Past) -> Iterator[Judged]:
    """With `request_finished`, a connector may keep the blocks of a request that has ended, until
    it reports the end of the send. If it never does, the pool loses these blocks for ever
    (vllm#42611, vllm#43742, vllm#53903)."""
    if isinstance(fact, Unfreed):
        kept = (
            reason("connector_keeps", "the connector keeps its blocks")
            if fact.request in past.sends
            else reason("has_blocks", "it has blocks")
        )
        yield because(
            reason(
                "ended",
                "{request} has ended ({status}), and {kept}",
                status=fact.status,
                kept=kept,
            ),
            reason(
                "no_report",
                "{steps} steps brought no report of the end of its transfer",
                steps=fact.steps,
            ),
            request=fact.request,
        )
    else:
        yield holds_if(not fact.blocks) or because(
            reason("goes_on", "{steps} steps without any request brought no end", steps=fact.steps)
            if fact.steps
            else reason("nothing_to_do", "the engine says that it has nothing more to do"),
            reason(
                "blocks_kept",
                "{blocks} of its blocks are not free; {keepers:names} has them",
                blocks=fact.blocks,
                keepers=(*fact.holders, *sorted(past.sends)),
            ),
        )
