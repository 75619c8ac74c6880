"""A workload: what a machine is driven with, so that two machines can be compared.

It is plain data, because it is sent to a process of its own.
"""

from typing import Annotated, Any, ClassVar, Self, TypeAlias

import msgspec
from msgspec import Meta, Struct

from kvproof.gate.difference.record import Taken
from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.plans.engine import EnginePlan


class _Workload(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """What all workloads have: a name, which no other workload of a run has."""

    name: str


class _OfCluster(_Workload, frozen=True):
    """What drives a cluster."""

    cluster: Cluster


class Follow(_OfCluster, frozen=True, tag="follow"):
    """Take these stimuli, leave out those that are not possible when their turn comes, and then
    drive the run to its end."""

    events: tuple[Event, ...] = ()


class Episodes(_OfCluster, frozen=True, tag="episodes"):
    """Random episodes: `episodes` runs of about `steps` choices each."""

    seed: int = 0
    episodes: Annotated[int, Meta(ge=1)] = 1
    steps: Annotated[int, Meta(ge=1)] = 30


class Again(_OfCluster, frozen=True, tag="again"):
    """Take the random runs that the other side has drawn."""

    runs: tuple[Taken, ...] = ()


class _OfConnector(_Workload, frozen=True):
    """What drives a connector that vLLM ships, by its name in the kit's table."""

    connector: str


class _Planned(_Workload, frozen=True):
    """What has a plan, which is of the type `PLAN` where it is allowed; here it is plain data, with
    lists of parts that can be left out."""

    PLAN: ClassVar[type[Any]]
    PARTS: ClassVar[tuple[str, ...]] = ("actions",)

    @property
    def parts(self) -> list[Any]:
        """The parts, in order."""
        plan = self.plan  # type: ignore[attr-defined]
        return [each for name in self.PARTS for each in plan.get(name, ())]

    def without(self, first: int, end: int) -> Self:
        """The same without the parts from `first` to `end`."""
        plan, before = dict(self.plan), 0  # type: ignore[attr-defined]
        for name in self.PARTS:
            parts = plan.get(name, ())
            kept = [e for at, e in enumerate(parts, before) if not first <= at < end]
            plan[name], before = kept, before + len(parts)
        return msgspec.structs.replace(self, plan=plan)


class Play(_OfConnector, _Planned, frozen=True, tag="play"):
    """Play one plan of the connector kit: an engine, and actions in order."""

    PLAN = ConnectorPlan
    plan: dict[str, Any]


class Plays(_OfConnector, frozen=True, tag="plays"):
    """Random plans of the connector kit; with the plan `like`, for its cache groups alone. With
    `about`, for cache groups that have one of these alone, if some have ("mamba", "ranks"); with
    `kinds`, for those of these kinds alone ("full+window"). `plans` are those that were drawn; who
    drives the workload on one vLLM alone may leave them to it."""

    seed: int = 0
    episodes: Annotated[int, Meta(ge=1)] = 1
    like: dict[str, Any] | None = None
    about: tuple[str, ...] = ()
    kinds: str = ""
    plans: tuple[dict[str, Any], ...] | None = None


class _OfEngines(_Workload, frozen=True):
    """Random plans for the engine around a scheduler."""

    seed: int = 0
    plans: Annotated[int, Meta(ge=1)] = 1


class Starts(_OfEngines, frozen=True, tag="starts"):
    """Random starts of engines, some with messages to their loops; with the plan `like`, with
    layers of its kinds alone."""

    like: dict[str, Any] | None = None


class Loops(_OfEngines, frozen=True, tag="loops"):
    """Random messages to engines, whose loops run."""


class _OfEngine(_Planned, frozen=True):
    """One plan for the engine around a scheduler. `WHAT` names the part of an engine that it is
    for; a break of it has this in place of the name of a cluster."""

    PLAN = EnginePlan
    WHAT: ClassVar[str]

    plan: dict[str, Any]


class Start(_OfEngine, frozen=True, tag="start"):
    """Start one engine: its layers, the memory of its workers, and the messages that come then."""

    PARTS = "layers", "actions"
    WHAT = "start-up"


class Loop(_OfEngine, frozen=True, tag="loop"):
    """Run the loop of one engine of given sizes: the messages that come, in order."""

    WHAT = "loop"


Planned: TypeAlias = Play | Start | Loop
"""A workload with one plan."""

Fixed: TypeAlias = Follow | Planned
"""A workload with fixed stimuli."""

Random: TypeAlias = Episodes | Plays | Starts | Loops
"""A workload of random runs."""

Workload: TypeAlias = Fixed | Again | Random


def follow(cluster: Cluster, name: str, events: tuple[Event, ...]) -> Follow:
    """A workload that takes the stimuli of these events."""
    return Follow(name, cluster, tuple(map(stimulus, events)))
