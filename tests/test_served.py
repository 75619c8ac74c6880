"""Options of an engine in the model: who is served, by what, and what is shared."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.invariants.guards_of_requests import _why_another_prompt
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.capacity import needed_blocks
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.extra_keys import FIRST, plain, written
from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Compute,
    Continue,
    Event,
    FinishLoad,
    Preempt,
    ResetPrefixCache,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    bare,
)
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.apply import apply
from kvproof.model.step import Step
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from tests.driving import taken
from tests.planted import under

# Priorities


FULL = Group("full", 2)


def test_the_lowest_number_is_admitted_first() -> None:
    jobs = (Job("late", "ab", priority=2), Job("soon", "cd", priority=1), Job("now", "ef"))
    cluster = Cluster("c", (EngineConfig("E", (FULL,), 9, policy="priority"),), jobs)
    machine = taken(ModelMachine(cluster), *(Submit("E", j.name) for j in jobs))
    chose = machine.take(Schedule("E")).event
    assert isinstance(chose, Schedule)
    assert [c.request for c in chose.chose or () if isinstance(c, Admit)] == ["now", "soon", "late"]


def test_the_last_gives_way_though_it_is_scheduled() -> None:
    cluster = CLUSTERS["priority-hybrid"]
    machine = taken(
        ModelMachine(cluster), Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1")
    )
    machine.take(Schedule("E"))
    machine.take(Complete("E"))
    cached = machine.state.engine("E").cached
    step = machine.take(Schedule("E"))
    assert bare(step.event) == Schedule(
        "E", (Compute("r0", 1), Preempt("r0", "r1"), Compute("r1", 1))
    )
    engine = step.after.engine("E")
    assert engine.running == ("r1",)
    assert engine.step == (("r1", 1),)
    assert {key for key, _ in engine.cached} <= {key for key, _ in cached}


def test_a_request_with_a_failed_load_is_not_served_with_those_that_hold_blocks() -> None:
    groups = (Group("full", 8), Group("window", 2, window=2))
    common = {"groups": groups, "num_blocks": 16, "policy": "priority"}
    cluster = Cluster(
        "c",
        (
            EngineConfig("P", role="prefill", chunk_tokens=8, **common),
            EngineConfig("D", role="decode", chunk_tokens=1, **common),
        ),
        (Job("r0", "a", 1), Job("r1", "a", 1)),
        failures=1,
        load_failure="recompute",
    )
    machine = taken(
        ModelMachine(cluster), Submit("P", "r0"), Submit("P", "r1"), Schedule("P"), Complete("P")
    )
    for event in (Submit("D", "r0"), Submit("D", "r1"), Schedule("D"), TransferFail("r0")):
        machine.take(event)
    machine.take(TransferDone("r1"))
    step = machine.take(Schedule("D"))
    assert bare(step.event) == Schedule("D", (FinishLoad("r0"), FinishLoad("r1"), Compute("r1", 1)))
    assert not list(broken(cluster, step, [INVARIANTS["priority_is_kept"]]))


# Limits


JOBS = (Job("r0", "abcdefgh"), Job("r1", "uvwxyz"))


def first_step(jobs: tuple[Job, ...] = JOBS, **options: object) -> Step:
    """The first step of an engine with these options, to which all jobs have come."""
    engine = EngineConfig("E", (FULL,), **{"num_blocks": 6, "chunk_tokens": 6, **options})  # type: ignore[arg-type]
    machine = ModelMachine(Cluster("c", (engine,), jobs))
    for job in jobs:
        machine.take(Submit("E", job.name))
    return machine.take(Schedule("E"))


def test_the_guard_sees_a_longer_chunk_beside_others() -> None:
    ignores = {"reference.scheduling.computing:most_beside_others": lambda _limit, budget: budget}
    step = under(ignores, first_step, long_prefill_tokens=4)
    cluster = Cluster(
        "c", (EngineConfig("E", (FULL,), 6, chunk_tokens=6, long_prefill_tokens=4),), JOBS
    )
    found = broken(cluster, step, [CHECKS["step_keeps_its_limits"]])
    assert [each.sentences[-1] for each in found] == ["r0 gets 6"]


def test_which_engine_receives() -> None:
    for name, receives in ("pd-async", (True, True)), ("pd-roles", (False, True)):
        assert tuple(e.receives for e in CLUSTERS[name].engines) == receives
    assert CLUSTERS["store"].prefill.receives
    assert not CLUSTERS["full"].prefill.receives


# An engine that admits a request only where its whole prompt fits


EVERY_REQUEST_ENDS = next(i.id for i in CHECKS.values() if i.kind == "eventually")
HYBRID = (Group("full", 4), Group("window", 4, window=4), Group("mamba", 4))


def run_of(engine: EngineConfig, *jobs: Job, sessions: bool = False) -> Run:
    cluster = Cluster("c", (engine,), jobs, sessions=sessions)
    return Run(ModelMachine(cluster), CHECKS.values())


def test_beside_a_hit_two_states_are_enough() -> None:
    """The hit's state, the state of the first chunk and a third one were counted, so a request that
    fits alone waited for ever."""
    groups = (Group("full", 4), Group("window", 4, window=7), Group("mamba", 4))
    engine = EngineConfig(
        "E", groups, chunk_tokens=1, steps_in_flight=2, reserve_whole_prompt=True, retention=0
    )
    for tokens in range(12, 48):
        tight = replace(engine, num_blocks=needed_blocks(engine, tokens) + 1)
        run = run_of(tight, Job("r0", "aaaaaaa", 1), Job("r1", "a" * tokens, 1))
        for event in (Submit("E", "r0"), *(Schedule("E"), Complete("E")) * 8, Submit("E", "r1")):
            if event in run.stimuli:
                run.take_one(event)
        drain(run, EVERY_REQUEST_ENDS)
        assert not run.machine.state.engine("E").requests


def test_alone_a_request_that_was_accepted_is_served() -> None:
    """Without a prefix cache, a second state was reserved that vLLM does not count."""
    groups = (Group("full", 1), Group("window", 1, window=3), Group("mamba", 1))
    engine = EngineConfig(
        "E", groups, chunk_tokens=3, prefix_caching=False, reserve_whole_prompt=True
    )
    for tokens in range(20, 40):
        run = run_of(
            replace(engine, num_blocks=needed_blocks(engine, tokens) + 1), Job("r0", "a" * tokens)
        )
        run.take_one(Submit("E", "r0"))
        drain(run, EVERY_REQUEST_ENDS)
        assert run.machine.state.ended


def test_a_session_gives_way_where_the_whole_next_part_does_not_fit() -> None:
    """The first chunk of r1 fits, so no session was preempted for it, and all waited for ever."""
    engine = EngineConfig(
        "E", HYBRID, num_blocks=12, chunk_tokens=16, reserve_whole_prompt=True, retention=0
    )
    jobs = (Job("r1", "aaaa", 1, parts=("aaaaa",)), Job("r2", "aaaaa", 2, parts=("a",)))
    run = run_of(engine, *jobs, sessions=True)
    work: tuple[Event, ...] = (Schedule("E"), Complete("E"))
    for event in (Submit("E", "r1"), Submit("E", "r2"), *work, *work, *work):
        run.take_one(event)
    for name in ("r1", "r2"):
        run.take_one(Continue("E", name))
    run.take_one(Schedule("E"))
    chose = run.steps[-1].event.chose  # type: ignore[union-attr]
    assert any(isinstance(each, Preempt) and each.request == "r2" for each in chose or ())
    drain(run, EVERY_REQUEST_ENDS)


# Resets of the prefix cache under load


def test_it_is_refused_while_blocks_are_in_use() -> None:
    cluster = replace(CLUSTERS["resetting"], resets_any_time=True)
    machine = taken(ModelMachine(cluster), Submit("E", "r0"), Schedule("E"), Complete("E"))
    before = machine.state
    assert ResetPrefixCache("E") in machine.stimuli()
    assert machine.take(ResetPrefixCache("E")).after == before
    machine.state = apply(cluster, machine.state, Abort("E", "r0")).after
    after = machine.take(ResetPrefixCache("E")).after.engine("E")
    assert after.cached == ()
    assert after.ghost.served == ()


# Sessions


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("ab𝚌d", True),
        ("ab𝚌", True),
        ("abcd", True),
        ("ab𝚍d", False),
        ("abｃd", False),
        ("abcde", False),
    ],
)
def test_a_prompt_keeps_its_tokens(now: str, kept: bool) -> None:
    """A letter may say that a token before was dropped; not another token, and not a salt."""
    assert (now == "abcd" or any(_why_another_prompt("abcd", now))) is kept
    assert any(_why_another_prompt("ab𝚌d", "abcd"))


# Salts and LoRA adapters: equal token ids, other KV


@pytest.mark.parametrize("key", FIRST)
def test_letters_say_the_extra_key_and_no_more(key) -> None:
    assert written("abc", "") == "abc"
    assert written("abz", key) != "abz"
    assert plain(written("abz", key) + ".?") == "abz.?"
    assert len({written("a", each) for each in FIRST}) == len(FIRST)


@pytest.mark.parametrize(("key", "hit"), [("", 2), ("salt", 0), ("adapter", 0), ("reloaded", 0)])
def test_only_equal_extra_keys_share_blocks(key, hit) -> None:
    jobs = Job("r0", "abc"), Job("r1", "abc", extra_key=key)
    cluster = Cluster("extra", (EngineConfig("E", (FULL,), 9),), jobs, extra_keys=True)
    machine = taken(
        ModelMachine(cluster),
        Submit("E", "r0"),
        Schedule("E"),
        Complete("E"),
        Submit("E", "r1"),
    )
    [admission] = machine.take(Schedule("E")).effects.admissions
    assert admission.hit == hit
