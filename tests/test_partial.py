"""Hits that end inside a block: what serves them, the copies they take, and what is refused."""

from typing import Any

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.step import Step

FULL, STATE = Group("full", 4), Group("mamba", 4)


def run(cluster: Cluster, *jobs: str) -> list[Step]:
    """Serve the jobs one after the other. Gives all steps."""
    machine, steps = ModelMachine(cluster), []
    for name in jobs:
        steps.append(machine.take(Submit("E", name)))
        while machine.state.engine("E").find(name):
            steps += [machine.take(Schedule("E")), machine.take(Complete("E"))]
    return steps


def engine(**options: Any) -> EngineConfig:
    return EngineConfig("E", (FULL, STATE), match_unit=2, **options)


def test_a_repeated_prompt_hits_up_to_its_last_prefix_with_a_hash() -> None:
    steps = run(CLUSTERS["partial"], "r0", "r1")
    assert [a.hit for s in steps for a in s.effects.admissions] == [0, 6]


def test_hits_of_unequal_blocks_end_on_the_finest() -> None:
    cluster = CLUSTERS["partial-unequal"].carrying(Job("r0", "abcdefg"), Job("r1", "abcdefg"))
    steps = run(cluster, "r0", "r1")
    assert [a.hit for s in steps for a in s.effects.admissions] == [0, 6]
