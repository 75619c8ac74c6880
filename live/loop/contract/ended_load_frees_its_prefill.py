"""A prefill node keeps the blocks of a request until the decode node has read them, or notifies it
that it will not. A request that ends before it is admitted, or that the front refuses, has to be
notified too (vllm#41269). An engine that is to end is an exception: its peers see this."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """Every prefill node of an ended request was notified when the loop waits."""
    for wait in () if played.stopped else unpaused(played):
        for name in wait.unfreed:
            yield because(
                reason("ended", "{request} has ended on this engine, or was refused"),
                idle(wait),
                reason("keeps", "its prefill node was not notified, and keeps its blocks"),
                request=name,
            )


RULE = EngineRule(
    id="ended_load_frees_its_prefill",
    name="when a request ends, its prefill node is notified",
    origin="NixlBaseConnectorScheduler.request_finished; vllm#41269",
    severity=Severity.LEAK,
    judge=judge,
)
