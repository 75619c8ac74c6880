"""Engines that go on: no event, call, message or start ends one with an error."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, Reason, because, holds, reason
from kvproof.model.facts.connectors import Died
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity
from kvproof.model.state import Death


def message_of(death: Death) -> Reason:
    """An exception with its message. A bare assertion has none: its statement says it."""
    return reason(
        "message",
        "{exception}: {message}",
        exception=death.exception,
        message=death.message or death.statement,
    )


@check(
    "no call of the connector, and none that follows its answers, raises an exception",
    origin="vllm#46231, vllm#43281",
    severity=Severity.CRASH,
)
def connector_survives(fact: Died) -> Iterator[Judged]:
    """An exception in the connector, or in the scheduler that follows its answers, ends the engine
    and every request on it (vllm#46231, vllm#43281, vllm#42289)."""
    where = fact.death.function
    yield because(
        reason("connector_raised", "the connector raised an exception in {where}", where=where)
        if fact.in_connector
        else reason(
            "vllm_raised",
            "vLLM, with this connector, raised an exception in {where}",
            where=where,
        ),
        message_of(fact.death),
    )


@check(
    "no message ends the engine",
    origin="EngineCoreProc.run_busy_loop",
    severity=Severity.CRASH,
    of_dead=True,
)
def loop_survives(played: Played) -> Iterator[Judged]:
    """A message of one client, or a transfer that fails, must not end the engine of all."""
    if not played.died:
        yield holds()
    else:
        yield because(
            reason("plays", "an engine runs, and messages of its clients come"),
            reason("dies", "{words}", words=played.died.words),
        )


@check(
    "an engine starts and serves a first request, or refuses with a reason",
    origin="EngineCore; vllm#45207, vllm#32283",
    severity=Severity.CRASH,
    of_dead=True,
)
def start_up_survives(start: Startup) -> Iterator[Judged]:
    """A start-up may refuse what it cannot serve, and says why. An assertion or a division by zero
    is no answer to a user (vllm#45207, vllm#32283)."""
    if start.died is None:
        yield holds()
    else:
        yield because(
            reason("starts", "an engine is started, and a first request comes"),
            reason("dies", "{words}", words=start.died.words),
        )
