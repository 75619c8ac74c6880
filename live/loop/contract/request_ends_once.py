"""A client takes the first end of its request for the last of its outputs."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No request has two ends."""
    for one in played.requests:
        if len(one.ends) > 1:
            yield because(
                reason("ends", "{request} has ended with {first}", first=one.ends[0]),
                reason("again", "it ends again, with {second}", second=one.ends[1]),
                request=one.name,
            )


RULE = EngineRule(
    id="request_ends_once",
    name="a request has one end",
    origin="EngineCoreOutput.finish_reason",
    severity=Severity.WRONG_REPORT,
    judge=judge,
)
