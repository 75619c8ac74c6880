"""What an engine finds at its start may differ from what its user asked for: the largest length
that the memory has room for, the tokens of a block. The front of the engine is another process.
Unless it receives these, it lets requests pass that wait for ever (vllm#39102), and reports other
sizes than the engine has (vllm#42967)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The front has the sizes of its engine."""
    for one in played.known:
        if one.by_front != one.of_engine:
            yield because(
                reason(
                    "started", "{what}: the engine has {count}", what=one.what, count=one.of_engine
                ),
                reason("knows", "its front knows of {count}", count=one.by_front, feature=one.what),
            )


RULE = EngineRule(
    id="front_knows_its_engine",
    name="the front of an engine knows the sizes that its start came to",
    origin="MPClient; vllm#39102, vllm#42967",
    severity=Severity.HANG,
    judge=judge,
)
