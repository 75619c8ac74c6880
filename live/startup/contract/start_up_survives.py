"""A start-up may refuse what it cannot serve, and says why. An assertion or a division by zero is
no answer to a user (vllm#45207, vllm#32283)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """Nothing but a refusal is raised."""
    if start.died is not None:
        yield because(
            reason("starts", "an engine is started, and a first request comes"),
            reason("dies", "{words}", words=start.died.words),
        )


RULE = EngineRule(
    id="start_up_survives",
    name="an engine starts and serves a first request, or refuses with a reason",
    origin="EngineCore; vllm#45207, vllm#32283",
    severity=Severity.CRASH,
    judge=judge,
    of_all=True,
)
