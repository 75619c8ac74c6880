"""What the table of features says of each: its names, when it is used, and what it excludes.

A feature is used by an engine or by a whole cluster. `Part` is which of the two a predicate looks
at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from kvproof.model.config.random_settings import RandomSettings

Part = TypeVar("Part")

NOT_MODELLED = "which kvproof does not model"

SECTIONS = ("cache groups", "prefix cache", "engine", "P/D", "traffic")
"""Where a feature stands in the table, in this order."""


class Refusal(NamedTuple):
    """Why a cluster is refused: the beginning of a sentence that says what is wrong, and what to
    use instead, both without a full stop."""

    wrong: str
    instead: str

    def __str__(self) -> str:
        return f"{self.wrong}. Use {self.instead}."


@dataclass(frozen=True, kw_only=True)
class Exclusion(Generic[Part]):
    """Features that a feature does not go with.

    All of `beside` must be used by the same engine, or cluster (`of`), and `where` must hold there,
    if it is given. `only` tells in README where that is. `because` is a clause for the refusal,
    `instead` what to use; if it is not given, it is to leave out one of the features.
    """

    of: type[Part]
    beside: tuple[str, ...]
    where: Callable[[Part], bool] | None = None
    only: str = ""
    because: str = NOT_MODELLED
    instead: str = ""


@dataclass(frozen=True, kw_only=True)
class Limit(Generic[Part]):
    """What a feature asks of the numbers, groups or jobs around it. `check` gives the refusal where
    that is not so. `words` tell in README what is refused, where that is worth a word."""

    of: type[Part]
    check: Callable[[Part], Refusal | None]
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Feature(Generic[Part]):
    """One line of the table.

    `name` stands in sentences, `words` and `options` in README. `on` and `off` are what to write to
    use the feature, and to leave it out; what nothing needs or excludes has none. `needs` are
    features that it cannot do without, and without those of `idle_without` it changes nothing. A
    job whose field `job_field` is set asks for the feature.

    A random cluster uses the feature after `draw`: one of up to three, or, with a `chance`, with
    this probability beside them. Without `draw` it follows from what else is drawn.
    """

    id: str
    section: str
    name: str
    words: str
    options: str
    of: type[Part]
    used: Callable[[Part], bool]
    on: str = ""
    off: str = ""
    needs: tuple[str, ...] = ()
    idle_without: tuple[str, ...] = ()
    job_field: str = ""
    exclusions: tuple[Exclusion[Any], ...] = ()
    limits: tuple[Limit[Any], ...] = ()
    draw: Callable[[RandomSettings], None] | None = None
    chance: float = 0.0
