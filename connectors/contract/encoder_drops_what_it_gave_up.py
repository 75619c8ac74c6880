"""The scheduler names the outputs of the encoder that a worker shall drop. One that the encoder
cache has taken again in the same step is still needed (vllm#52482)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ItemDropped
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """No output is dropped that the encoder cache has."""
    if isinstance(fact, ItemDropped):
        yield because(
            reason("has", "the encoder cache has image {item}", item=fact.item),
            reason("drops", "the worker is to drop what the encoder made of it"),
        )


RULE = ConnectorRule(
    id="encoder_drops_what_it_gave_up",
    name="a worker drops no output that the encoder cache has",
    origin="EncoderCacheManager.get_freed_mm_hashes; vllm#52482",
    severity=Severity.LOST_PERFORMANCE,
    counts="images dropped",
    otherwise="no worker was to drop an image",
    judge=judge,
)
