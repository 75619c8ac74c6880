"""The scheduler counts the tokens that a connector promised as computed. If a load pairs blocks
from the wrong end, ends before its last layer, or brings a token less, the request reads what was
there before (vllm#50558, vllm#43494, vllm#43516)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.connectors.contract.words import content, place
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Loaded
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A promised slot holds the KV of its token when its load is over."""
    if isinstance(fact, Loaded):
        yield because(
            reason(
                "promised",
                "the load of {request} promised token {token}, {content}",
                token=fact.token,
                content=content(fact.expected),
            ),
            reason(
                "holds_after",
                "after the load {place} holds {content}",
                place=place(fact.slot),
                content=content(fact.found),
            ),
            request=fact.request,
            group=fact.slot.group,
            block=fact.slot.block,
        )


RULE = ConnectorRule(
    id="promised_tokens_are_loaded",
    name="when a load is over, each promised token is loaded in each layer",
    origin="get_num_new_matched_tokens, wait_for_layer_load, get_finished; vllm#50558",
    severity=Severity.WRONG_TOKENS,
    counts="promised tokens",
    otherwise="no load was promised",
    judge=judge,
)
