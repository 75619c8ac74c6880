"""Workers make their buffers before the memory is known. If vLLM then fits the largest length to
the memory, it informs them (vllm#31260)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The workers know the largest length of a request."""
    known = start.known_tokens or start.plan.max_model_len
    if known != start.max_model_len:
        yield because(
            reason("fitted", "requests have at most {tokens} tokens", tokens=start.max_model_len),
            reason("known", "the workers know of {tokens}", tokens=known),
        )


RULE = EngineRule(
    id="workers_know_the_length",
    name="workers receive the largest length that was fitted to the memory",
    origin="_initialize_kv_caches; vllm#31260",
    severity=Severity.BOOKKEEPING,
    judge=judge,
)
