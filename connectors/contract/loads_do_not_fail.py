"""A connector matches only tokens that are there at the time of the call. So a load succeeds while
what is behind the connector loses nothing and does not fail. If it fails, vLLM ends the request
with an error (`kv_load_failure_policy` "fail", the default)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, LoadEnded, LoadFailed
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """No load fails without a cause."""
    if past.may_fail:
        return
    nothing = reason("nothing_lost", "nothing behind the connector was lost, and nothing failed")
    if isinstance(fact, LoadEnded) and fact.failed and fact.request not in past.reset:
        yield because(
            nothing,
            reason("load_failed", "the worker reports that the load of {request} failed"),
            request=fact.request,
        )
    elif isinstance(fact, LoadFailed) and not past.reset:
        yield because(
            nothing,
            reason(
                "blocks_failed",
                "the worker reports that the load of blocks {blocks} failed",
                blocks=fact.blocks,
            ),
            block=fact.blocks[0],
        )


RULE = ConnectorRule(
    id="loads_do_not_fail",
    name="a load does not fail while nothing behind the connector was lost or failed",
    origin="get_num_new_matched_tokens, get_block_ids_with_load_errors",
    severity=Severity.CRASH,
    counts="loads",
    otherwise="no load was promised",
    judge=judge,
)
