"""The type of a coverage goal: an event that a search must meet before its green result means
anything. A rule is not tested where it never applies.

A goal is about one kind of event, so a step is checked only against the goals of its event.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.step import Step

Seen: TypeAlias = Callable[[Cluster, Step, Any], bool]
"""Whether a step meets the goal. The last argument is the step's event."""

Possible: TypeAlias = Callable[[Cluster], bool]
"""Whether the goal is possible with the options of a cluster."""


def happens(_cluster: Cluster, _step: Step, _event: object) -> bool:
    """The event alone meets the goal."""
    return True


def always(_cluster: Cluster) -> bool:
    """No option rules the goal out; the traffic may."""
    return True


def on_some_engine(has: Callable[[EngineConfig], object]) -> Possible:
    """The goal needs an engine for which this is true."""
    return lambda cluster: any(has(engine) for engine in cluster.engines)


class Goal(NamedTuple):
    """A coverage goal.

    `name` is a sentence, and `kind` the class of its event. `met_in` is a preset in which a search
    meets it, and `not_met_in` one in which it does not. If the goal is not `possible` in a cluster,
    a search does not miss it.
    """

    id: str
    name: str
    kind: type
    seen: Seen
    met_in: str
    not_met_in: str
    possible: Possible = always
