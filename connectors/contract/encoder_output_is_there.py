"""The scheduler says which images the encoder computes, and which outputs the worker drops. A step
that computes a token of an image needs its output; if it was dropped before, the engine dies of an
encoder cache miss (vllm#46315). What no request needs may be dropped at any time, so a request
needs it until the step has run (vllm#38907)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ItemMissing, ItemUnkept
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The output of an image is there in a step that reads it."""
    if isinstance(fact, ItemMissing):
        yield because(
            reason(
                "reads_image",
                "a step of {request} computes token {token}, of image {item}",
                token=fact.token,
                item=fact.item,
            ),
            reason("no_output", "the worker does not have what the encoder made of it"),
            request=fact.request,
        )
    elif isinstance(fact, ItemUnkept):
        yield because(
            reason("reads", "a step of {request} reads image {item}", item=fact.item),
            reason("unkept", "the encoder cache counts it as free before the step has run"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="encoder_output_is_there",
    name="what the encoder made of an image is there in each step that reads it",
    origin="SchedulerOutput.scheduled_encoder_inputs, free_encoder_mm_hashes; vllm#38907",
    severity=Severity.CRASH,
    counts="images read",
    otherwise="no request had an image",
    judge=judge,
)
