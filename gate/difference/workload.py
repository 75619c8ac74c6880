"""A workload: what a machine is driven with, so that two machines can be compared.

It is plain data, because it is sent to a process of its own.
"""

from typing import Annotated, Any, Self, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus
from kvproof.model.plans.config_options import ConfigOptions
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.part import Taken

ENGINE = "engine"
"""What a break of an engine core has in place of the name of a cluster."""

START, LOOP = "Start", "Loop"
"""What a break of an engine core has in place of an event: its start-up breaks a check, or its
loop."""


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

    @property
    def run(self) -> Taken:
        """The run that is taken."""
        return Taken(self.cluster, self.events)

    @property
    def runs(self) -> tuple[Taken, ...]:
        """The runs that are taken: this one."""
        return (self.run,)

    def of(self, run: Taken) -> "Follow":
        """The same with another run."""
        return Follow(self.name, run.cluster, run.events)


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


class _OfPlan(_Workload, frozen=True):
    """What drives one `plan`."""

    @property
    def run(self) -> Any:
        """The run that is taken: the plan."""
        return self.plan  # type: ignore[attr-defined]

    def of(self, run: Any) -> Self:
        """The same with another plan."""
        return replace(self, plan=run)


class Play(_OfConnector, _OfPlan, frozen=True, tag="play"):
    """Play one plan of the connector kit: an engine, and actions in order."""

    plan: ConnectorPlan


class Plays(_OfConnector, frozen=True, tag="plays"):
    """Random plans of the connector kit; with the plan `like`, for its cache groups alone. With
    `about`, for cache groups that have one of these alone, if some have ("mamba", "ranks"); with
    `kinds`, for those of these kinds alone ("full+window"). The engines have these
    `config_options`. `plans` are those that were drawn; who drives the workload on one vLLM alone
    may leave them to it."""

    seed: int = 0
    episodes: Annotated[int, Meta(ge=1)] = 1
    like: ConnectorPlan | None = None
    about: tuple[str, ...] = ()
    kinds: str = ""
    config_options: ConfigOptions = ()
    plans: tuple[ConnectorPlan, ...] | None = None


class Engine(_OfPlan, frozen=True, tag="engine"):
    """Start one engine core, and run its loop: its layers, the memory of its workers, and the
    messages of its clients."""

    plan: EnginePlan


class Engines(_Workload, frozen=True, tag="engines"):
    """Random plans for an engine core. With the plan `like`, for engines whose number of blocks
    comes of the same, with layers of its kinds, its number of stages and drafts, and its connector
    or store alone, and with messages where it has some; its model pools if that one does. They have
    these `config_options`; if the workload is `about` a kind of models, "pools" or "drafts", all
    are of it. `plans` are those that were chosen."""

    seed: int = 0
    episodes: Annotated[int, Meta(ge=1)] = 1
    like: EnginePlan | None = None
    config_options: ConfigOptions = ()
    plans: tuple[EnginePlan, ...] | None = None
    about: str = ""


Planned: TypeAlias = Play | Engine
"""A workload with one plan."""

Fixed: TypeAlias = Follow | Planned
"""A workload with fixed stimuli."""

Random: TypeAlias = Episodes | Plays | Engines
"""A workload of random runs."""

Workload: TypeAlias = Fixed | Again | Random


def follow(cluster: Cluster, name: str, events: tuple[Event, ...]) -> Follow:
    """A workload that takes the stimuli of these events."""
    return Follow(name, cluster, tuple(map(stimulus, events)))
