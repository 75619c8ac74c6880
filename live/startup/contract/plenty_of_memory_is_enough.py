"""Layers of kinds that vLLM serves may have pages that share no common size, as a drafter with
windows beside a model with latent attention (vllm#48776), and cannot be laid out as they are. vLLM
refuses some models for this. One that another release serves is refused without need: its user has
no engine, with any memory."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """A start with plenty of memory is not refused."""
    if start.blocks is None and start.refused:
        yield because(
            reason("plenty", "each worker has plenty of memory"),
            reason("does_not_start", "vLLM refuses: {words}", words=start.refused),
        )


RULE = EngineRule(
    id="plenty_of_memory_is_enough",
    name="with plenty of memory, an engine starts",
    origin="get_kv_cache_groups; vllm#48776",
    severity=Severity.LOST_PERFORMANCE,
    judge=judge,
    of_all=True,
    of_two=True,
)
