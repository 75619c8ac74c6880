"""P truncates a prompt by one token, because D computes the last token. After a preemption P
schedules the request again. Without a guard, P truncates one more token each time, and D receives
the KV of too few tokens (vllm#37310, review)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A prompt has as many tokens as were submitted, or one token fewer."""
    for request in engine.requests:
        sent = request.submitted_prompt_tokens
        lost = sent - len(request.prompt)
        if lost not in (0, 1):
            yield because(
                reason(
                    "was_submitted",
                    "{request} was submitted to {engine} with {sent} prompt tokens"
                    + (" and preempted" if request.preemptions else ""),
                    sent=sent,
                    preemptions=request.preemptions,
                ),
                reason("prompt_has", "its prompt has {tokens} tokens", tokens=len(request.prompt)),
                engine=engine.name,
                request=request.id,
            )


INVARIANT = Invariant(
    id="truncated_at_most_once",
    name="a prompt is truncated at most once, also if its request is preempted",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.PROMPTS,),
    killed_by="truncation_without_guard",
)
