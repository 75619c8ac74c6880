"""An encoder-cache connector loads what the encoder made of an image, in place of computing it. A
step that reads anything else answers about another image."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ItemWrong
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The output of an image that a step reads is that of this image."""
    if isinstance(fact, ItemWrong):
        yield because(
            reason(
                "reads_image",
                "a step of {request} computes token {token}, of image {item}",
                token=fact.token,
                item=fact.item,
            ),
            reason("other_output", "what the worker has for it is not what the encoder made of it"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="encoder_output_is_its_own",
    name="what a step reads of an image is what the encoder made of that image",
    origin="ECConnectorBase.start_load_caches, save_caches",
    severity=Severity.WRONG_TOKENS,
    counts="images loaded",
    otherwise="no encoder-cache connector loaded an image",
    judge=judge,
)
