"""Live vLLM satisfies the spec where its queue of steps is kept full."""

import random
from collections import Counter

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import (
    Complete,
    Event,
    Release,
    ResetRunning,
    Schedule,
    Submit,
    describe,
)
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import VOID
from kvproof.strategies.run import Run
from tests.test_model_by_hand import OVERLAPPING, ways
from tests.watching import is_undriven, watched

pytestmark = pytest.mark.live


SEEDS = 6
STEPS_MAX = 200


def eager(choose: random.Random, stimuli: list[Event], last: Event | None) -> Event:
    """The next event: mostly a further step, as `step_with_batch_queue` does, and an output where
    none can be dispatched, or the last one came up empty."""
    work = [e for e in stimuli if isinstance(e, Schedule) and e != last]
    if work and choose.random() < 0.6:
        return choose.choice(work)
    outputs = [e for e in stimuli if isinstance(e, Complete)]
    if outputs and choose.random() < 0.6:
        return choose.choice(outputs)
    return choose.choice(stimuli)


def test_the_spec_is_satisfied_where_the_queue_is_kept_full() -> None:
    seen: Counter[str] = Counter()
    for name in OVERLAPPING:
        for seed in range(0 if is_undriven(CLUSTERS[name]) else SEEDS):
            choose = random.Random(seed)
            machine = watched(CLUSTERS[name])
            run = Run(machine, CHECKS.values())
            last: Event | None = None
            while len(run.steps) < STEPS_MAX and run.stimuli:
                event = eager(choose, run.stimuli, last)
                run.take_one(event)
                nothing = Schedule(getattr(event, "engine", ""), ())
                last = event if run.steps[-1].event == nothing else None
                seen.update(ways(machine.state))
            assert not run.stimuli, [describe(s.event) for s in run.steps]
            assert machine.judged == len(run.steps)
    # That late tokens come is shown by the planted late_output_takes_placeholder.
    assert set(seen) >= {VOID, "two steps", "blocks wait"}


def test_who_does_not_fit_and_may_not_preempt_lets_go_of_its_old_window() -> None:
    groups = (Group("full", 1), Group("window", 1, window=2))
    engine = EngineConfig("E", groups, 9, chunk_tokens=4, store=True, steps_in_flight=2)
    jobs = (Job("r0", "a", 4), Job("r1", "b", 4))
    run = Run(watched(Cluster("tight", (engine,), jobs)), CHECKS.values())
    schedule, complete = Schedule("E"), Complete("E")
    for event in (Submit("E", "r0"), schedule, schedule, Submit("E", "r1"), complete, schedule):
        run.take_one(event)
    for event in (complete, schedule):
        run.take_one(event)
    assert run.steps[-1].event == Schedule("E", (Release("r0", ((), (2,))),))


def test_drafts_thrown_away_by_a_reset_leave_the_length_of_who_comes_back() -> None:
    engine = EngineConfig("E", (Group("full", 2),), 12, chunk_tokens=5, steps_in_flight=2, drafts=1)
    jobs, schedule, complete = (Job("r0", "aaaaaaaaaa", 3),), Schedule("E"), Complete("E")
    cluster = Cluster("reset", (engine,), jobs, resets=True, resets_any_time=True)
    run = Run(watched(cluster), CHECKS.values())
    for event in (Submit("E", "r0"), schedule, complete, schedule, complete, schedule):
        run.take_one(event)
    for event in (ResetRunning("E"), schedule, complete, schedule):
        run.take_one(event)
    steps = run.machine.state.engine("E").steps
    assert [f.samples for step in steps for f in step] == [False, False]
