"""An engine that only encodes images (`ec_role` is `ec_producer`) samples nothing: a request has
ended well when all its images are encoded. If it ends before, its client has an answer, and the
engine that computes the prompt waits for what nobody encodes (vllm#50275)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ItemsUnencoded
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The images of a request that has ended were encoded."""
    if isinstance(fact, ItemsUnencoded):
        yield because(
            reason("ended_well", "{request} has ended at an engine that only encodes images"),
            reason("unencoded", "no step has encoded {items}", items=fact.items),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="encoder_instance_encodes_all",
    name="a request ends at an engine that only encodes when all its images are encoded",
    origin="ECTransferConfig.ec_role, make_empty_encoder_model_runner_output; vllm#50275",
    severity=Severity.HANG,
    counts="requests that were encoded",
    otherwise="no engine that only encodes has ended a request",
    judge=judge,
)
