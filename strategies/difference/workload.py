"""A workload: what a machine is driven with, so that two machines can be compared.

It is plain data, because it is sent to a process of its own.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus


class _Workload(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """What all workloads have: a name, which no other workload of a run has, and a cluster."""

    name: str
    cluster: Cluster


class Follow(_Workload, frozen=True, tag="follow"):
    """Take these stimuli, leave out those that are not possible when their turn comes, and then
    drive the run to its end."""

    events: tuple[Event, ...] = ()


class Episodes(_Workload, frozen=True, tag="episodes"):
    """Random episodes: `episodes` runs of about `steps` choices each."""

    seed: int = 0
    episodes: Annotated[int, Meta(ge=1)] = 1
    steps: Annotated[int, Meta(ge=1)] = 30


Workload: TypeAlias = Follow | Episodes


def follow(cluster: Cluster, name: str, events: tuple[Event, ...]) -> Follow:
    """A workload that takes the stimuli of these events."""
    return Follow(name, cluster, tuple(map(stimulus, events)))
