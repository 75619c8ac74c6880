"""The type of a rule of the loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvproof.live.loop.seen import Played
from kvproof.model.because import Because
from kvproof.model.severity import Severity


@dataclass(frozen=True)
class LoopRule:
    """One rule. `name` is a sentence that must be true. `origin` says who relies on it. `judge`
    yields the reasons if a play breaks the rule; it is asked of engines that live alone, unless
    `of_dead`."""

    id: str
    name: str
    origin: str
    severity: Severity
    judge: Callable[[Played], Iterator[Because]]
    of_dead: bool = False
