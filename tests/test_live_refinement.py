"""Recorded live runs of the small P/D configuration replay on the model: every event vLLM took is
allowed, and the states agree."""

import random

import pytest

from kvproof.model.faults.fault import rules_with
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.replay import record

pytestmark = pytest.mark.live

SEEDS = 50
STEPS_MAX = 200


@pytest.mark.parametrize("name", ["pd", "pd-preempting"])
def test_recorded_live_runs_replay_on_the_model(name: str) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    cluster = CLUSTERS[name]
    rules = rules_with(deviations(availability.installed()))
    finished = 0
    for seed in range(SEEDS):
        choose = random.Random(seed)
        live = LiveMachine(cluster)
        events = []
        while len(events) < STEPS_MAX and (stimuli := live.stimuli()):
            events.append(live.take(choose.choice(stimuli)).event)
        finished += not stimuli
        changes = record(LiveMachine(cluster), tuple(events))
        assert changes is not None, f"seed {seed}: live vLLM did not do the same twice"
        modelled = record(ModelMachine(cluster, rules), tuple(events))
        assert modelled == changes, f"seed {seed}: the model does not follow"
    assert finished == SEEDS
