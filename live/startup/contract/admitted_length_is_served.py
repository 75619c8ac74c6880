"""An engine that starts has promised that a request of the largest length fits. If it does not, the
request waits for ever, and all behind it. So the null block counts, each group counts, and the
memory of each worker (vllm#36030, vllm#41069, vllm#40946)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """A request of the largest length ends on an idle engine."""
    if start.run is not None and not start.run.ended:
        yield because(
            reason(
                "accepts",
                "an engine with {blocks} blocks (one of them the null block) accepts requests of "
                "{tokens} tokens",
                blocks=start.num_blocks,
                tokens=start.run.tokens,
            ),
            reason(
                "waits",
                "such a request, alone, has computed {computed} tokens and waits for ever; it "
                "lacks {lacks} blocks",
                computed=start.run.computed,
                lacks=start.lacks,
            ),
        )


RULE = EngineRule(
    id="admitted_length_is_served",
    name="an engine that starts serves a request of its largest length",
    origin="_check_enough_kv_cache_memory; vllm#36030, vllm#41069, vllm#40946",
    severity=Severity.HANG,
    judge=judge,
)
