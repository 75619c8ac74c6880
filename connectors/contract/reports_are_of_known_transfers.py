"""The scheduler asserts that a report is about a transfer that it waits for: a load that was
promised, or a request whose blocks were kept. A report for anything else, or a second one, ends the
engine or frees blocks twice (vllm#43371, vllm#51595, vllm#46240)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, LoadEnded, SendEnded
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """The worker reports the end of transfers that are under way."""
    if isinstance(fact, LoadEnded):
        load = past.loads.get(fact.request)
        if load is None or not load.later:
            yield because(
                reason("no_load", "no load of {request} is under way"),
                reason("load_ended", "the worker reports that it has ended"),
                request=fact.request,
            )
    elif isinstance(fact, SendEnded) and fact.request not in past.sends:
        yield because(
            reason("keeps_no_blocks", "the connector does not keep the blocks of {request}"),
            reason("send_ended", "the worker reports that they are sent"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="reports_are_of_known_transfers",
    name="the worker reports each transfer once, and only transfers that are under way",
    origin="get_finished; Scheduler._update_from_kv_xfer_finished; vllm#43371, vllm#51595",
    severity=Severity.CRASH,
    counts="reports",
    otherwise="it reported no end of a transfer",
    judge=judge,
)
