"""P leaves the last prompt token to D. After a preemption the request is scheduled again: without a
guard it loses another token each time (#37310, review)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Engine


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """A prompt is as long as it was sent, or one token shorter."""
    for request in engine.requests:
        sent = request.submitted_prompt_tokens
        lost = sent - len(request.prompt)
        if lost not in (0, 1):
            yield because(
                f"{request.id} was sent to {engine.name} with {sent} prompt tokens"
                f"{' and preempted' if request.preemptions else ''}",
                f"{len(request.prompt)} are left",
                engine=engine.name,
                request=request.id,
            )


INVARIANT = Invariant(
    id="truncated_at_most_once",
    name="a prompt is truncated at most once, whatever preemption does",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    killed_by="truncation_without_guard",
)
