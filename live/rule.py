"""The rules of engines that kvproof starts, and of engines whose loop runs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from kvproof.model.because import Because
from kvproof.model.discovery import declared
from kvproof.model.finding import Finding
from kvproof.model.severity import Severity

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class EngineRule(Generic[Seen]):
    """One rule. `name` is a sentence that must be true. `origin` says who relies on it. `judge`
    yields the reasons if what was seen of an engine breaks the rule; it is asked of engines that
    were started and live, unless `of_all`. Where a vLLM may have good reasons to break it, `of_two`
    says that it is a finding only beside another vLLM that does not."""

    id: str
    name: str
    origin: str
    severity: Severity
    judge: Callable[[Seen], Iterator[Because]]
    of_all: bool = False
    of_two: bool = False


def rules_of(room: ModuleType) -> dict[str, EngineRule[Any]]:
    """The rules in the files of a folder by id, the gravest first."""
    found = sorted(declared(room, "RULE"), key=lambda rule: (rule.severity, rule.id))
    return {rule.id: rule for rule in found}


def findings(rules: Iterable[EngineRule[Seen]], seen: Seen, *, lives: bool) -> Iterator[Finding]:
    """The findings of an engine, in the order of the rules: of each rule the first."""
    for rule in rules:
        if lives or rule.of_all:
            for judged in rule.judge(seen):
                yield Finding(rule.id, judged.reasons, judged.about)
                break
