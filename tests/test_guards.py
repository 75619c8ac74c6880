"""No guard is idle: each is broken by a small change of some step that the reference takes.

The changes are made without knowledge of any guard, so that a new one is asked as it is.
"""

import functools
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest

from kvproof.invariants.check import Check, broken
from kvproof.invariants.registry import GUARDS
from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step
from tests.breadth_first import search

STATES_MAX = 60
"""States of a preset whose steps are changed."""

STATUSES = (WAITING, RUNNING, PREEMPTED)


def changed(value: Any) -> Iterator[Any]:
    """What differs from a value in one place: another number, text, truth or status, or one thing
    less in a list."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value - 1, value + 1)
    elif isinstance(value, str):
        yield from (s for s in STATUSES if value in STATUSES and s != value)
        yield from (value + ".", value[:-1])
    elif isinstance(value, msgspec.Struct):
        for name, part in msgspec.structs.asdict(value).items():
            for other in changed(part):
                yield msgspec.structs.replace(value, **{name: other})
    elif isinstance(value, tuple):
        named = hasattr(value, "_fields")
        for index, part in enumerate(value):
            before, after = value[:index], value[index + 1 :]
            for other in changed(part):
                yield type(value)(*before, other, *after) if named else (*before, other, *after)
            if not named:
                yield (*before, *after)


def steps(cluster: Cluster) -> list[Step]:
    """Steps of the reference in the first states of a cluster."""
    taken: list[Step] = []
    search(cluster, [], STATES_MAX, on_step=taken.append)
    return taken


@functools.cache
def changed_steps(name: str) -> tuple[Step, ...]:
    """The steps of a preset, each changed in one place."""
    return tuple(other for step in steps(CLUSTERS[name]) for other in changed(step))


def refused(guard: Check, name: str) -> Iterator[Step]:
    """The changed steps of a preset that break a guard. Of some it cannot be asked: a request that
    they name is not there."""
    for step in changed_steps(name):
        try:
            if any(broken(CLUSTERS[name], step, [guard])):
                yield step
        except (KeyError, IndexError, StopIteration, ValueError):
            continue


@pytest.mark.parametrize("guard", GUARDS.values(), ids=list(GUARDS))
def test_a_small_change_of_a_step_breaks_it(guard: Check) -> None:
    # Between P and D there is something for each guard.
    names = sorted(CLUSTERS, key=lambda name: not CLUSTERS[name].disaggregated)
    wrong = (step for name in names for step in refused(guard, name))
    assert list(islice(wrong, 1)), f"no changed step breaks {guard.id}"
