"""Users read from the log how many of the longest requests fit, and size a deployment by it: where
fewer fit, they preempt each other, and KV is computed again. One request held so many blocks when
it ran alone: no more fit than blocks are there for them, and not fewer than a bound allows that no
engine has to exceed (vllm#48317). Of each Mamba group a state for each step in flight may be held
between two steps alone, with drafts one more: those of a step may fill a block."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The reported concurrency lies between the two."""
    if start.concurrency is None or start.run is None or not start.run.held_max:
        return
    tokens = start.max_model_len
    least = (start.num_blocks - 1) / (start.enough_for(tokens) - 1)
    steps = start.in_flight_tokens // start.plan.chunk_tokens + bool(start.plan.drafts)
    between = sum(group.kind == "mamba" for group in start.groups) * steps
    most = start.num_blocks / max(start.run.held_max - between, 1)
    if not least <= start.concurrency <= most:
        yield because(
            reason(
                "fits",
                "{blocks} blocks; a request of {tokens} tokens held {held}, and {enough} are "
                "enough for it",
                blocks=start.num_blocks,
                tokens=tokens,
                held=start.run.held_max,
                enough=start.enough_for(tokens) - 1,
            ),
            reason(
                "reported",
                "vLLM reports that {times} such requests fit",
                times=f"{start.concurrency:.2f}",
            ),
        )


RULE = EngineRule(
    id="concurrency_is_what_fits",
    name="the concurrency that is reported is what fits",
    origin="get_max_concurrency_for_kv_cache_config; vllm#48317",
    severity=Severity.LOST_PERFORMANCE,
    judge=judge,
)
