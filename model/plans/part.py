"""What the parts of plans have in common."""

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from kvproof.model.config import Cluster
from kvproof.model.events import Event


class PlanPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A plan, or a part of one. In a file, fields with their default value are left out, and an
    unknown field is an error."""


def drawn(r: Random, parameters: Mapping[str, tuple[Any, ...]]) -> SimpleNamespace:
    """One of the equally likely values of each parameter, by its name."""
    return SimpleNamespace(**{name: r.choice(values) for name, values in parameters.items()})


class Taken(Struct, frozen=True, forbid_unknown_fields=True):
    """A run as it is taken: the cluster with the jobs, and the events in order. The first `before`
    of them serve other requests, and some of these need not be possible."""

    cluster: Cluster
    events: tuple[Event, ...]
    before: int = 0
