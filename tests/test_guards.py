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
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Event
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import PREEMPTED, RUNNING, WAITING, Engine, State
from kvproof.model.step import Effects, Step
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


@functools.cache
def right_steps(name: str) -> list[Step]:
    """Steps of the reference in the first states of a preset."""
    taken: list[Step] = []
    search(CLUSTERS[name], [], STATES_MAX, on_step=taken.append)
    return taken


@functools.cache
def changed_steps(name: str) -> tuple[Step, ...]:
    """The steps of a preset, each changed in one place."""
    return tuple(other for step in right_steps(name) for other in changed(step))


def well_formed(cluster: Cluster, step: Step) -> bool:
    """Whether a changed step can be one of a cluster at all: each value has its type, each engine
    its blocks and its groups, and each number of a block is one."""
    try:
        for part, kind in zip(step, (State, Event, Effects, State), strict=True):
            msgspec.convert(msgspec.to_builtins(part), kind)
    except msgspec.ValidationError:
        return False
    names = [engine.name for engine in cluster.engines]
    named = [step.event, *(each for kind in step.effects if kind for each in kind)]
    return all(getattr(each, "engine", names[0]) in names for each in named) and all(
        [engine.name for engine in state.engines] == names
        and all(map(engine_well_formed, cluster.engines, state.engines))
        for state in (step.before, step.after)
    )


def engine_well_formed(cfg: EngineConfig, engine: Engine) -> bool:
    """Whether an engine has the blocks and the groups of its config."""
    groups = len(cfg.groups)
    lists = [engine.free, *(held for _, held in engine.cached)]
    for request in engine.requests:
        lists += request.tables
    return (
        len(engine.blocks) == len(engine.memory) == cfg.num_blocks
        and all(0 <= number < cfg.num_blocks for each in lists for number in each)
        and all(0 <= group < groups for (group, _), _ in engine.cached)
        and all(len(request.tables) in (0, groups) for request in engine.requests)
    )


def refused(guard: Check, name: str) -> Iterator[Step]:
    """The changed steps of a preset that break a guard. A guard may raise an exception only of a
    step that no engine could take."""
    for step in changed_steps(name):
        try:
            breaks = any(broken(CLUSTERS[name], step, [guard]))
        except Exception:
            if well_formed(CLUSTERS[name], step):
                raise
            continue
        if breaks:
            yield step


NAMES = sorted(CLUSTERS, key=lambda name: not CLUSTERS[name].disaggregated)
"""The presets: between P and D there is something for each guard."""


@pytest.mark.parametrize("guard", GUARDS.values(), ids=list(GUARDS))
def test_a_small_change_of_a_step_breaks_it(guard: Check) -> None:
    wrong = (step for name in NAMES for step in refused(guard, name))
    assert list(islice(wrong, 1)), f"no changed step breaks {guard.id}"


@pytest.mark.parametrize("guard", GUARDS.values(), ids=list(GUARDS))
def test_a_right_step_counts_as_judged(guard: Check) -> None:
    right = (
        judged
        for name in NAMES
        for step in right_steps(name)
        for judged in guard.of_step(CLUSTERS[name], step)
    )
    assert any(judged.times and not judged.reasons for judged in right)
