"""Hits that end inside a block: what serves them, the copies they take, and what is refused."""

from typing import Any

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
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


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: EngineConfig("E", (FULL, STATE), match_unit=3),
            r"match_unit 3 .* Use 0, or .* divisor of 4",
        ),
        (lambda: EngineConfig("E", (FULL,), match_unit=2), r"requires an aligned Mamba group"),
        (
            lambda: EngineConfig("E", (FULL, Group("mamba", 2))),
            r"narrower blocks than 4.* Use block_size 4",
        ),
        (lambda: EngineConfig("E", (FULL, FULL, STATE), match_unit=2), r"one full group"),
        (lambda: engine(retention=2), r"retention 2 .* Use a multiple of 4, or 0"),
        (
            lambda: EngineConfig(
                "E", (FULL, Group("window", 2, 3), STATE), match_unit=2, retention=0
            ),
            r"retention, hits inside a block and windows.* Use retention null, or no window",
        ),
        (
            lambda: engine(kv_events=True),
            r"inside a block of full .* Use block_size 2 for the full",
        ),
        (lambda: engine(prefix_caching=False), r"nothing to hit\. Use .* prefix_caching true"),
    ],
)
def test_what_is_not_modelled_beside_it_is_refused(build: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build()


def test_hits_of_unequal_blocks_end_on_the_finest() -> None:
    cluster = CLUSTERS["partial-unequal"].carrying(Job("r0", "abcdefg"), Job("r1", "abcdefg"))
    steps = run(cluster, "r0", "r1")
    assert [a.hit for s in steps for a in s.effects.admissions] == [0, 6]
