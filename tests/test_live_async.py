"""Live vLLM satisfies the spec where its queue of steps is kept full, and in recorded runs."""

import random
from collections import Counter

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS
from kvproof.invariants.steps_in_flight import (
    placeholders_are_samples_in_flight,
    settled_frees,
)
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
from kvproof.model.state import VOID, State
from kvproof.model.step import Effects, Step
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.run import Run
from tests.test_speculation import OVERLAPPING, ways
from tests.watching import is_undriven, live_machine, watched

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


@pytest.mark.parametrize("name", ["hybrid-async", "pd-async"])
def test_a_reset_of_running_requests_with_a_step_in_flight(name: str) -> None:
    """`reset_prefix_cache(reset_running_requests=True)`, for which the model has no event. Alone,
    an engine throws the outputs under way away and begins anew. Beside a connector the blocks wait
    for the step, so that vLLM 0.32.0 finds blocks in use and raises, with the requests preempted
    and the cache as it was."""
    cluster = CLUSTERS[name].carrying(Job("r0", "abc", 3))
    machine, engine = live_machine(cluster), cluster.prefill.name
    for event in (Submit(engine, "r0"), Schedule(engine)):
        machine.take(event)
    node = machine.nodes[engine]
    if not cluster.prefill.connected:
        assert node.scheduler.reset_prefix_cache(reset_running_requests=True)
    else:
        with pytest.raises(RuntimeError, match="Failed to reset KV cache"):
            node.scheduler.reset_prefix_cache(reset_running_requests=True)
    node.refresh()
    assert [f.fate for step in node.engine.steps for f in step] == [VOID]
    assert bool(node.engine.cached) is cluster.prefill.connected
    assert bool(node.engine.deferred) is cluster.prefill.connected
    step = Step(machine.state, event, Effects(), State((node.engine,)))
    checks = (placeholders_are_samples_in_flight, settled_frees)
    assert not list(broken(cluster, step, checks))


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


# Recorded runs of small pairs


RUNS = 30


@pytest.mark.parametrize("name", ["pd", "pd-preempting"])
def test_recorded_live_runs_satisfy_the_spec_and_replay(name: str) -> None:
    cluster = CLUSTERS[name]
    finished = 0
    for seed in range(RUNS):
        choose = random.Random(seed)
        machine = watched(cluster)
        run = Run(machine, CHECKS.values())
        while len(run.steps) < STEPS_MAX and run.stimuli:
            run.take_one(choose.choice(run.stimuli))
        finished += not run.stimuli
        assert machine.judged >= len(run.steps) > 0
        events = tuple(step.event for step in run.steps)
        once, again = (record(live_machine(cluster), events) for _ in range(2))
        assert once is not None, f"seed {seed}: live vLLM does not take its own events"
        assert once == again, f"seed {seed}: live vLLM did not do the same twice"
    assert finished == RUNS
