"""The type of a rule of the contract, and what it may look back at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from kvproof.model.because import Because, Reason, reason
from kvproof.model.facts.connectors import (
    BlocksKept,
    Fact,
    LoadEnded,
    MayFail,
    Promised,
    SendEnded,
    StoreReset,
)
from kvproof.model.severity import Severity
from kvproof.model.state import Death


@dataclass
class Past:
    """What happened before a fact: the loads and the sends that are under way, and whether what is
    behind the connector may fail. `reset` are the loads during which its cache was reset."""

    loads: dict[str, Promised] = field(default_factory=dict)
    sends: set[str] = field(default_factory=set)
    may_fail: bool = False
    reset: set[str] = field(default_factory=set)

    def add(self, fact: Fact) -> None:
        """Take a fact into the past."""
        if isinstance(fact, Promised):
            self.loads[fact.request] = fact
            self.reset.discard(fact.request)
        elif isinstance(fact, LoadEnded):
            self.loads.pop(fact.request, None)
            self.reset.discard(fact.request)
        elif isinstance(fact, BlocksKept):
            self.sends.add(fact.request)
        elif isinstance(fact, SendEnded):
            self.sends.discard(fact.request)
        elif isinstance(fact, MayFail):
            self.may_fail = True
        elif isinstance(fact, StoreReset):
            self.reset.update(name for name, load in self.loads.items() if load.later)


@dataclass(frozen=True)
class ConnectorRule:
    """One rule. `name` is a sentence that must be true. `origin` says who relies on it. `counts`
    names what it judges, as a run counts it. If a run has none, `otherwise` says why it was not
    judged. `judge` yields the reasons if a fact breaks the rule. A break says nothing of others of
    what is `apart`: of other cache groups, or of other connectors."""

    id: str
    name: str
    origin: str
    severity: Severity
    counts: str
    otherwise: str
    judge: Callable[[Fact, Past], Iterator[Because]]
    apart: Literal["groups", "connectors", ""] = "groups"


def message_of(death: Death) -> Reason:
    """An exception with its message. A bare assertion has none: its statement says it."""
    return reason(
        "message",
        "{exception}: {message}",
        exception=death.exception,
        message=death.message or death.statement,
    )
