"""An engine that died stopped inside a step: its death is reported, and not its half-made step."""

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death, initial
from kvproof.model.step import Effects, Step

CLUSTER: Cluster = CLUSTERS["pd-full"]
CHECKS = [INVARIANTS[name] for name in ("engine_survives", "pool_adds_up", "references_are_exact")]


def broken_with(**deaths: Death) -> set[tuple[str, str]]:
    """What breaks, and on which engine, if each engine loses a free block and some die."""
    state = initial(CLUSTER)
    engines = tuple(
        engine._replace(free=engine.free[1:], dead=deaths.get(engine.name))
        for engine in state.engines
    )
    step = Step(state, Schedule("P"), Effects(), state._replace(engines=engines))
    return {(found.invariant, found.about.engine) for found in broken(CLUSTER, step, CHECKS)}


def test_a_lost_block_is_reported_of_engines_that_live() -> None:
    assert broken_with() == {("pool_adds_up", "P"), ("pool_adds_up", "D")}


def test_of_a_dead_engine_only_its_death_is_reported() -> None:
    assert broken_with(D=Death("AssertionError")) == {
        ("pool_adds_up", "P"),
        ("engine_survives", "D"),
    }
