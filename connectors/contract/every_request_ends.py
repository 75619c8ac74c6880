"""A request that waits for a load is served when the load is reported. If the connector answers
"ask again later" for ever, or never reports a load, the request hangs (vllm#49328, vllm#53903)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Waits
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """A request ends if the engine runs on and nothing more arrives."""
    if not isinstance(fact, Waits) or fact.status.startswith("FINISHED"):
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
            others=fact.others,
        )
    else:
        why = reason("no_load", "no load of it is under way")
    yield because(waits, why, request=fact.request)


RULE = ConnectorRule(
    id="every_request_ends",
    name="a request ends when nothing more arrives and the engine runs on",
    origin="get_num_new_matched_tokens, get_finished; vllm#49328",
    severity=Severity.HANG,
    counts="loads",
    otherwise="no load was promised",
    judge=judge,
)
