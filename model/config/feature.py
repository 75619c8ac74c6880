"""The entries of the table of features: the names of a feature, when a cluster uses it, and what it
excludes.

An engine or a whole cluster uses a feature. `Part` is the type that a predicate takes: engine or
cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from kvproof.model.config.random_settings import RandomSettings

Part = TypeVar("Part")

NOT_MODELLED = "which kvproof does not model"


class Refusal(NamedTuple):
    """Why kvproof refuses a cluster: what is wrong, and what to use instead, both without a full
    stop."""

    wrong: str
    instead: str

    def __str__(self) -> str:
        return f"{self.wrong}. Use {self.instead}."


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Features that cannot be combined with a feature.

    The exclusion applies where the same engine uses all of `beside`, and `where`, if given, holds.
    If one of these features is a feature of clusters, this is asked of a cluster. `only` describes
    `where` in README. `because` is a clause for the refusal. `instead` is what to use; if it is not
    given, the refusal proposes to leave out one of the features. With `live`, live vLLM is driven
    with these features, and only the model refuses them.
    """

    beside: tuple[str, ...]
    where: Callable[[Any], bool] | None = None
    only: str = ""
    because: str = NOT_MODELLED
    instead: str = ""
    live: bool = False


@dataclass(frozen=True)
class Limit:
    """A condition of a feature on numbers, groups or jobs. `check` returns the refusal where the
    condition does not hold; the type of its parameter says whether it is asked of an engine or of a
    cluster. `words` describes in README what is refused; it may be empty."""

    check: Callable[[Any], Refusal | None]
    words: str = ""

    @cached_property
    def of(self) -> type:
        """What the condition is asked of: an engine or a cluster."""
        return next(iter(get_type_hints(self.check).values()))  # type: ignore[no-any-return]


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
    exclusions: tuple[Exclusion, ...] = ()
    limits: tuple[Limit, ...] = ()
    draw: Callable[[RandomSettings], None] | None = None
    chance: float = 0.0
