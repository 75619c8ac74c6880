"""The type of a rule of a start-up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvproof.live.startup.seen import Startup
from kvproof.model.because import Because
from kvproof.model.severity import Severity


@dataclass(frozen=True)
class StartupRule:
    """One rule. `name` is a sentence that must be true. `origin` says who relies on it. `judge`
    yields the reasons if a start breaks the rule; it is asked of accepted starts alone, unless
    `of_all`."""

    id: str
    name: str
    origin: str
    severity: Severity
    judge: Callable[[Startup], Iterator[Because]]
    of_all: bool = False
