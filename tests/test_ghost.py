"""Ghost state is a function of what is observed, and no machine looks at it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.model import ghost
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.ghost_state import EMPTY, PREFIX_EVICTED, Ghost
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.apply import apply, stimuli
from kvproof.model.reference.blocks import pool
from kvproof.model.state import (
    Engine,
    State,
    initial,
)
from kvproof.model.step import Step
from tests.watching import live_machine

DRIVEN = ("events", "hybrid", "full-evicting", "async-preempting", "resetting", "partial")


def driven(machine: Machine, seed: int, steps: int) -> list[Step]:
    """A random run."""
    choose, taken = random.Random(seed), []
    while len(taken) < steps and (offered := machine.stimuli()):
        taken.append(machine.take(choose.choice(offered)))
    return taken


def observed(state: State) -> State:
    return state._replace(engines=tuple(engine.observed for engine in state.engines))


def unremembered(step: Step) -> Step:
    """A step as somebody sees it who has no memory."""
    admissions = tuple(a._replace(served=()) for a in step.effects.admissions)
    effects = step.effects._replace(admissions=admissions)
    return Step(observed(step.before), step.event, effects, observed(step.after))


def folded(cluster: Cluster, steps: list[Step]) -> Iterator[Step]:
    """The steps with ghost states computed again, from the first one on."""
    ghosts = [EMPTY for _ in cluster.engines]
    for step in map(unremembered, steps):
        engines = zip(step.before.engines, ghosts, strict=True)
        before = State(tuple(e._replace(ghost=g) for e, g in engines), *step.before[1:])
        again = ghost.remembered(cluster, step._replace(before=before))
        yield again
        ghosts = [engine.ghost for engine in again.after.engines]


def ghosts_of(steps: list[Step]) -> list[Ghost]:
    return [engine.ghost for step in steps for engine in step.after.engines]


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_ghost_of_a_run_of_the_model_can_be_computed_afterwards(name: str) -> None:
    steps = driven(ModelMachine(CLUSTERS[name]), 0, 60)
    assert list(folded(CLUSTERS[name], steps)) == steps


def test_the_recorded_runs_have_ghost_state() -> None:
    """So that the comparisons above compare something."""
    found = [
        g
        for n in (*DRIVEN, "partial-tight")
        for g in ghosts_of(driven(ModelMachine(CLUSTERS[n]), 0, 60))
    ]
    assert any(g.served for g in found)
    assert any(g.mirror for g in found)
    shared = {tokens for g in found for _, tokens in g.shared}
    assert {0, 4, PREFIX_EVICTED} <= shared


@pytest.mark.live
@pytest.mark.parametrize("name", DRIVEN)
def test_the_ghost_of_a_live_run_can_be_computed_afterwards(name: str) -> None:
    remembered = []
    for seed in range(3):
        steps = driven(live_machine(CLUSTERS[name]), seed, 60)
        assert list(folded(CLUSTERS[name], steps)) == steps
        remembered += ghosts_of(steps)
    assert any(g.served for g in remembered)
    assert any(g.mirror for g in remembered) == any(e.kv_events for e in CLUSTERS[name].engines)


def behaviour(cluster: Cluster, state: State, event: Event) -> tuple[Any, Any]:
    """What the model offers in a state, and what it does when it takes an event."""
    return list(stimuli(cluster, state)), unremembered(apply(cluster, state, event))


def reads_the_ghost(cluster: Cluster) -> bool:
    """Whether the model does in some random run what it would not do without a history."""
    choose = random.Random(cluster.name)
    for _ in range(4):
        state, taken = initial(cluster), 0
        while taken < 50 and (offered := list(stimuli(cluster, state))):
            event = choose.choice(offered)
            if behaviour(cluster, state, event) != behaviour(cluster, observed(state), event):
                return True
            state, taken = apply(cluster, state, event).after, taken + 1
    return False


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_reference_does_not_read_the_ghost(name: str) -> None:
    assert not reads_the_ghost(CLUSTERS[name])


def test_a_pool_that_reads_the_ghost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    take = pool.take

    def taking(engine: Engine, count: int) -> tuple[Engine, tuple[int, ...]]:
        if count and engine.ghost.served:
            engine = engine._replace(free=engine.free[::-1])
        return take(engine, count)

    monkeypatch.setattr(pool, "take", taking)
    assert reads_the_ghost(CLUSTERS["full-evicting"])
