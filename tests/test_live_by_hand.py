"""Small runs of live vLLM, each for one thing."""

import random
from collections import Counter
from contextlib import closing
from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, GUARDS, INVARIANTS
from kvproof.live import build
from kvproof.live.observer import kept
from kvproof.live.observer.view import Names
from kvproof.live.options import watermark
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.cluster import Direction
from kvproof.model.events import (
    Admit,
    Complete,
    Compute,
    Event,
    LeaseExpire,
    Release,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    describe,
)
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, LOADING, RUNNING, VOID
from kvproof.model.step import Step
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from tests.driving import taken
from tests.in_vllm import around
from tests.mistakes_of_engines import deaf
from tests.test_model_by_hand import OVERLAPPING, ways
from tests.watching import Counting, is_undriven, live_machine, watched

pytest.importorskip("vllm")

pytestmark = pytest.mark.live


# Options that deployments set


JOBS = (Job("r0", "abcdefgh"), Job("r1", "uvwxyz"))


def first_step(jobs: tuple[Job, ...] = JOBS, **options: Any) -> tuple[dict[str, int], list[str]]:
    """The tokens that the first step of live vLLM computes, and what that breaks."""
    engine = EngineConfig(
        "E", (Group("full", 2),), **{"num_blocks": 6, "chunk_tokens": 10, **options}
    )
    machine = live_machine(Cluster("c", (engine,), jobs))
    for job in jobs:
        machine.take(Submit("E", job.name))
    step = machine.take(Schedule("E"))
    machine.close()
    assert isinstance(step.event, Schedule)
    tokens = {c.request: c.tokens for c in step.event.chose or () if isinstance(c, Compute)}
    return tokens, [f.invariant for f in broken(machine.cluster, step, CHECKS.values())]


@pytest.mark.parametrize(
    ("change", "wrong"), [(None, set()), (deaf, {"request_ends_with_its_last_token"})]
)
@pytest.mark.parametrize("flight", [1, 2])
def test_a_model_ends_its_answer_before_its_largest_length(
    flight: int, change: Any, wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where steps overlap, a step of the request is in flight that computes a token for nobody."""
    if change:
        around("vllm.v1.core.sched.scheduler:check_stop", change)(monkeypatch)
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=9, steps_in_flight=flight)
    machine = live_machine(Cluster("c", (engine,), (Job("r0", "abc", 4, stops=2),)))
    steps = [machine.take(Submit("E", "r0"))]
    for event in (*[Schedule("E")] * flight, *(Complete("E"), Schedule("E")) * 2):
        if event in machine.stimuli():
            steps.append(machine.take(event))
    machine.close()
    found = {f.invariant for s in steps for f in broken(machine.cluster, s, GUARDS.values())}
    assert found & {"request_ends_with_its_last_token"} == wrong
    assert (steps[-1].after.engine("E").find("r0") is None) == (change is None)


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({}, {"r0": 8}),  # whole prompts are reserved by default
        ({"reserve_whole_prompt": True}, {"r0": 8}),
        ({"reserve_whole_prompt": False}, {"r0": 8, "r1": 2}),
        ({"long_prefill_tokens": 3, "num_blocks": 9}, {"r0": 3, "r1": 3}),
        ({"watermark_blocks": 1, "num_blocks": 8}, {"r0": 8}),
        ({"num_blocks": 8}, {"r0": 8, "r1": 2}),
    ],
)
def test_an_option_changes_the_first_step(options: dict[str, Any], tokens: dict[str, int]) -> None:
    assert first_step(**options) == (tokens, [])


@pytest.mark.parametrize("total", [2, 3, 7, 40, 999, 4096])
def test_the_share_of_the_pool_is_the_number_of_blocks(total: int) -> None:
    for blocks in {1, total // 2, total - 1}:
        cfg = EngineConfig("E", (Group("full", 2),), num_blocks=total, watermark_blocks=blocks)
        assert int(watermark(cfg) * total) == blocks


def preempted_in_flight() -> tuple[str, str]:
    """On live P: the fate of an output whose request was preempted after the step was dispatched,
    and the role of P."""
    machine = taken(
        live_machine(CLUSTERS["pd-roles-preempting"]),
        Submit("P", "r0"),
        Submit("P", "r1"),
        Schedule("P"),
        Schedule("P"),
    )
    node = machine.nodes["P"]
    fates = {f.request: f.fate for f in machine.state.engine("P").steps[0]}
    machine.close()
    assert fates["r0"] == COUNTS
    return fates["r1"], node.scheduler.vllm_config.kv_transfer_config.kv_role


def test_a_producer_drops_the_output_of_a_preempted_prefill() -> None:
    assert preempted_in_flight() == (VOID, "kv_producer")


@pytest.mark.parametrize(("name", "eagle"), [("drafts", True), ("ngram-drafts", False)])
def test_a_drafter_is_configured_as_vllm_configures_one(name: str, eagle: bool) -> None:
    cfg = CLUSTERS[name].engines[0]
    scheduler = build.scheduler(cfg, "fail")
    assert scheduler.num_spec_tokens == cfg.drafts
    assert scheduler.num_lookahead_tokens == cfg.lookahead
    assert scheduler.use_eagle_block_drop is eagle is bool(cfg.eagle_drop_tokens)
    scheduler.shutdown()


# Sessions beside other features


class Hashed(NamedTuple):
    """A request of which only the hashes are read."""

    request_id: str
    block_hashes: list[bytes]
    resumable: bool = False


def test_a_kept_hash_of_a_dropped_token_is_named_once() -> None:
    """The first block was hashed with a sampled token, which the session drops. What follows is
    named by other letters than in another request, until the session is hashed anew."""
    cfg = EngineConfig("E", (Group("full", 2, eagle=True),), 9, drafts=1, hash_lookahead_tokens=1)
    names = Names(cfg)
    names.learn(Hashed("r0", [b"1"], resumable=True), "ab.")
    session = Hashed("r0", [b"1", b"2"])
    names.learn(session, "abcde")
    assert names.prefixes == {(0, b"1"): "ab.", (0, b"2"): "ab𝚌de"}
    assert names.as_hashed(session, "abcde") == "ab𝚌de"

    names.learn(Hashed("r1", [b"3", b"4"]), "abcde")
    again = Hashed("r0", [b"3", b"4"])
    assert names.as_hashed(again, "ab𝚌de") == "abcde"
    assert names.prefixes[0, b"4"] == "abcde"


def test_a_hash_of_other_tokens_is_no_dropped_token() -> None:
    """Neither of a request that is no session, nor where no sampled token was hashed."""
    cfg = EngineConfig("E", (Group("full", 2, eagle=True),), 9, drafts=1, hash_lookahead_tokens=1)
    names = Names(cfg)
    names.learn(Hashed("r0", [b"1"]), "ab.")
    names.learn(Hashed("r1", [b"2"], resumable=True), "abd")
    assert names.as_hashed(Hashed("r2", [b"1"]), "abc") == "abc"
    assert names.as_hashed(Hashed("r1", [b"2"], resumable=True), "abc") == "abc"


# A request that the pool may not hold


ROUNDED_UP = (
    EngineConfig("E", (Group("full", 2), Group("window", 2, window=4)), 40, chunk_tokens=5),
    (Job("r0", "a" * 70),),
)
"""It would fit, but admission counts a window block more than is ever held."""

AFTER_A_HIT = (
    EngineConfig(
        "E",
        (Group("full", 2), Group("window", 2, window=3), Group("mamba", 2)),
        16,
        chunk_tokens=16,
    ),
    (Job("r0", "aaa"), Job("r1", "a" * 13)),
)
"""It would fit without the hit, which takes a cached state besides the one to be computed."""


def driven(engine: EngineConfig, jobs: tuple[Job, ...], without: str = "") -> Counting:
    machine = watched(Cluster("near", (engine,), oversized=True), without)
    run = Run(machine, [INVARIANTS["every_request_can_finish"]])
    run.add_jobs(jobs)
    for job in jobs:
        run.take(Submit("E", job.name))
        drain(run, "every_request_can_finish")
    return machine


@pytest.mark.parametrize("case", [ROUNDED_UP, AFTER_A_HIT], ids=["rounded up", "after a hit"])
def test_who_may_not_fit_is_passed_by_for_ever(case: tuple[EngineConfig, tuple[Job, ...]]) -> None:
    assert driven(*case).met == {"impossible_fit_waits": 1}
    with pytest.raises(Violated, match="every_request_can_finish"):
        driven(*case, without="impossible_fit_waits")


# What an idle engine keeps


class Scheduler:
    """A class of vLLM, for the walk."""

    def __init__(self) -> None:
        self.notes: list[str] = []


Scheduler.__module__ = "vllm.made_up"


def test_what_is_taken_away_and_comes_again_is_not_kept() -> None:
    """Notes of one step, which the next one takes away, and makes again for a repeated prompt."""
    scheduler = Scheduler()
    leftovers = kept.Leftovers(scheduler, "E")
    for hashes in (1, 2, 3):
        scheduler.notes[:] = [f"hash {n}" for n in range(hashes)]
        leftovers.idle()
        scheduler.notes[:] = [f"hash {n}" for n in range(hashes)]
        assert not any(each.grew for each in leftovers.stepped())


# The queue of steps is kept full


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


def test_a_recorded_run_satisfies_the_spec_and_is_taken_again() -> None:
    cluster, choose = CLUSTERS["pd-preempting"], random.Random(0)
    machine = watched(cluster)
    run = Run(machine, CHECKS.values())
    while len(run.steps) < STEPS_MAX and run.stimuli:
        run.take_one(choose.choice(run.stimuli))
    assert not run.stimuli
    assert machine.judged >= len(run.steps) > 0
    events = tuple(step.event for step in run.steps)
    once, again = (record(live_machine(cluster), events) for _ in range(2))
    assert once is not None, "live vLLM does not take its own events"
    assert once == again, "live vLLM did not do the same twice"


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


# A store beside KV transfers: P and D each load from the store what the other does not offer


PROMPT = "abcdefg"
PREFILL: tuple[Event, ...] = (Schedule("P"), Complete("P"))
DECODE: tuple[Event, ...] = (Schedule("D"), Complete("D"))


def first_request(steps: int = 1) -> tuple[Event, ...]:
    """A first request ends on both engines, and what they have cached is lost. P computes it in so
    many steps. With pull, D gets it after that."""
    arrive, loads = (Submit("P", "r0"), Submit("D", "r0")), (Schedule("D"), TransferDone("r0"))
    resets = ResetPrefixCache("P"), ResetPrefixCache("D")
    return (*arrive, *PREFILL * steps, *loads, *DECODE * 2, *resets)


def pair(transfer: Direction, *states: Group, **more: Any) -> Cluster:
    """P and D with stores, and two jobs of one prompt."""
    engines = (
        EngineConfig(name, (Group("full", 2), *states), 24, role, store=True)
        for name, role in (("P", "prefill"), ("D", "decode"))
    )
    jobs = Job("r0", PROMPT, 2), Job("r1", PROMPT, 2)
    return Cluster("c", tuple(engines), jobs, transfer=transfer, resets=True, **more)


def taken_when_possible(machine: Any, *events: Event) -> Step:
    """The last step of these events; an event that is not possible yet is taken later."""
    left = [*events]
    while left:
        event = next(e for e in left if e in machine.stimuli())
        left.remove(event)
        step = machine.take(event)
    return step


def loads(step: Step) -> list[tuple[int, int]]:
    """The hits and loads of a step."""
    chosen = step.event.chose if isinstance(step.event, Schedule) else ()
    return [(c.local_hit, c.external) for c in chosen or () if isinstance(c, Admit)]


@pytest.mark.parametrize("transfer", ["pull", "push"])
def test_p_loads_from_its_store_and_d_from_p(transfer: Direction) -> None:
    with closing(live_machine(pair(transfer))) as machine:
        taken_when_possible(machine, *first_request(), Submit("P", "r1"))
        step = taken_when_possible(machine, Schedule("P"))
        assert loads(step) == [(0, 6)]
        assert step.after.engine("P").request("r1").status == RUNNING
        assert step.effects.reads
        assert all(read.found == read.expected for read in step.effects.reads)
        taken_when_possible(machine, Complete("P"), Submit("D", "r1"))
        step = taken_when_possible(machine, Schedule("D"))
        assert loads(step) == [(0, 7)]
        assert step.after.engine("D").request("r1").status == LOADING
        taken_when_possible(machine, TransferDone("r1"))
        step = taken_when_possible(machine, Schedule("D"))
        assert all(read.found == read.expected for read in step.effects.reads)


def test_the_store_of_p_leaves_a_token_of_a_prompt_whose_last_token_nixl_takes_away() -> None:
    with closing(live_machine(pair("pull", Group("mamba", 2)))) as machine:
        taken_when_possible(machine, *first_request(steps=2))
        assert machine.state.engine("P").stored == ("abcd", "abcdef")
        step = taken_when_possible(machine, Submit("P", "r1"), Schedule("P"))
        assert not step.after.engine("P").dead
        assert loads(step) == [(0, 4)]


def test_what_a_failed_read_did_not_bring_comes_from_the_store_of_d() -> None:
    with closing(live_machine(pair("pull", failures=1, load_failure="recompute"))) as machine:
        taken_when_possible(
            machine,
            *first_request(),
            Submit("P", "r1"),
            Schedule("P"),
            Complete("P"),
            Submit("D", "r1"),
        )
        taken_when_possible(machine, Schedule("D"), TransferFail("r1"))
        step = taken_when_possible(machine, Schedule("D"))
        assert loads(step) == [(0, 6)]
        assert step.after.engine("D").request("r1").status == RUNNING
        assert all(read.found == read.expected for read in step.effects.reads)
        step = taken_when_possible(machine, Complete("D"), LeaseExpire("r1"))
        assert not step.after.transfers


def test_what_neither_the_store_nor_the_other_engine_has_is_not_loaded() -> None:
    made = pair("pull")
    with closing(live_machine(made)) as machine:
        taken_when_possible(machine, *first_request(), Submit("P", "r1"))
        step = taken_when_possible(machine, Schedule("P"))
    guard = [GUARDS["load_is_offered"]]
    assert not [*broken(made, step, guard)]
    without = step.before.engine("P")._replace(stored=("ab",))
    wrong = step._replace(before=step.before.with_engine(without))
    assert [*broken(made, wrong, guard)]
