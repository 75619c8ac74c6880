"""The entries of the table of features: the names of a feature, when a cluster uses it, and what it
excludes.

An engine or a whole cluster uses a feature. `Part` is the type that a predicate takes: engine or
cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from kvproof.model.config.random_settings import RandomSettings

Part = TypeVar("Part")

NOT_MODELLED = "which kvproof does not model"

SECTIONS = ("cache groups", "prefix cache", "engine", "P/D", "traffic")
"""The sections of the table, in this order."""


class Refusal(NamedTuple):
    """Why kvproof refuses a cluster: what is wrong, and what to use instead, both without a full
    stop."""

    wrong: str
    instead: str

    def __str__(self) -> str:
        return f"{self.wrong}. Use {self.instead}."


@dataclass(frozen=True, kw_only=True)
class Exclusion(Generic[Part]):
    """Features that cannot be combined with a feature.

    The exclusion applies where the same engine or cluster (`of`) uses all of `beside`, and `where`,
    if given, holds. `only` describes `where` in README. `because` is a clause for the refusal.
    `instead` is what to use; if it is not given, the refusal proposes to leave out one of the
    features. With `live`, live vLLM is driven with these features, and only the model refuses them.
    """

    of: type[Part]
    beside: tuple[str, ...]
    where: Callable[[Part], bool] | None = None
    only: str = ""
    because: str = NOT_MODELLED
    instead: str = ""
    live: bool = False


@dataclass(frozen=True, kw_only=True)
class Limit(Generic[Part]):
    """A condition of a feature on numbers, groups or jobs. `check` returns the refusal where the
    condition does not hold. `words` describes in README what is refused; it may be empty."""

    of: type[Part]
    check: Callable[[Part], Refusal | None]
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Feature(Generic[Part]):
    """One line of the table.

    `name` is used in sentences, `words` and `options` in README. `on` and `off` are the settings
    that use the feature and leave it out; they are empty where no feature needs or excludes it.
    `needs` are the features that it requires; without the features in `idle_without` it has no
    effect. A job with the field `job_field` requires the feature.

    `draw` sets the feature in a random cluster. A random cluster has up to three features without a
    `chance`; a feature with a `chance` is added with that probability. A feature without `draw`
    results from the other settings.
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
