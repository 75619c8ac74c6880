"""An engine with memory for a request of the largest length starts, and a length that is fitted to
the memory is not much smaller than what fits (vllm#33698). What is enough is a bound that no engine
has to exceed: all tokens of a request in each group, or those of its window and of the steps in
flight, in whole blocks, two more for each group, and the null block."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """What has enough memory is not refused, and is not cut short."""
    if start.blocks is None or not start.groups or start.died:
        return
    wanted = start.plan.max_model_len
    fits = next((n for n in range(wanted, 0, -1) if start.enough_for(n) <= start.blocks), 0)
    if fits < (1 if start.plan.auto else wanted):
        return
    room = reason(
        "room",
        "each worker has {blocks} blocks, and {enough} are enough for {tokens} tokens",
        blocks=start.blocks,
        enough=start.enough_for(fits),
        tokens=fits,
    )
    if start.refused:
        yield because(room, reason("does_not_start", "vLLM refuses: {words}", words=start.refused))
    elif start.max_model_len < fits:
        yield because(
            room,
            reason("cut", "the length is fitted to {tokens} tokens", tokens=start.max_model_len),
        )


RULE = EngineRule(
    id="enough_memory_is_accepted",
    name="what has enough memory is not refused, and is not cut short",
    origin="_auto_fit_max_model_len; vllm#33698",
    severity=Severity.LOST_PERFORMANCE,
    judge=judge,
    of_all=True,
)
