"""What a coverage goal is: something that a search must have met before its green means anything.
No rule is tested where it never applies.

A goal is about one kind of event, so that a step is asked only for what may be true of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kvproof.model.config import Cluster, Engine
from kvproof.model.step import Step

Seen: TypeAlias = Callable[[Cluster, Step, Any], bool]
"""Whether it happens in a step, whose event (the last argument) is of the goal's kind."""

Possible: TypeAlias = Callable[[Cluster], bool]
"""Whether the options of a cluster leave it possible."""


def happens(_cluster: Cluster, _step: Step, _event: object) -> bool:
    """The event alone is enough."""
    return True


def always(_cluster: Cluster) -> bool:
    """No option rules it out. The traffic may."""
    return True


def on_some_engine(has: Callable[[Engine], object]) -> Possible:
    """It needs an engine of which this is true."""
    return lambda cluster: any(has(engine) for engine in cluster.engines)


class Goal(NamedTuple):
    """Something that must happen somewhere.

    `name` is a sentence, and `kind` the event that it is about. `met_in` names a preset in which it
    happens, and `not_met_in` one in which it does not. Where it is not `possible`, a search does
    not miss it.
    """

    id: str
    name: str
    kind: type
    seen: Seen
    met_in: str
    not_met_in: str
    possible: Possible = always
