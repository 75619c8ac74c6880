"""A client that pauses an engine, ends a pause or resets the cache waits for the answer. An engine
that is to end is an exception."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """Each call has one answer."""
    for method, answers in () if played.stopped else played.calls:
        if answers != 1:
            yield because(
                reason("calls", "a client has called {method}", method=method),
                reason("answers", "it received {answers} answers", answers=answers),
            )


RULE = EngineRule(
    id="call_is_answered_once",
    name="a call of a client has one answer",
    origin="EngineCoreProc._invoke_utility_method",
    severity=Severity.HANG,
    judge=judge,
)
