"""Recorded runs of live vLLM, of small pairs of P and D: each step satisfies the spec, and live
vLLM does the same twice."""

import random

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.run import Run
from tests.watching import watched

pytestmark = pytest.mark.live

SEEDS = 30
STEPS_MAX = 200


@pytest.mark.parametrize("name", ["pd", "pd-preempting"])
def test_recorded_live_runs_satisfy_the_spec_and_replay(name: str) -> None:
    from kvproof.live.machine import LiveMachine

    cluster = CLUSTERS[name]
    finished = 0
    for seed in range(SEEDS):
        choose = random.Random(seed)
        machine = watched(cluster)
        run = Run(machine, CHECKS.values())
        while len(run.steps) < STEPS_MAX and run.stimuli:
            run.take_one(choose.choice(run.stimuli))
        finished += not run.stimuli
        assert machine.judged >= len(run.steps) > 0
        events = tuple(step.event for step in run.steps)
        once, again = (record(LiveMachine(cluster), events) for _ in range(2))
        assert once is not None, f"seed {seed}: live vLLM does not take its own events"
        assert once == again, f"seed {seed}: live vLLM did not do the same twice"
    assert finished == SEEDS
