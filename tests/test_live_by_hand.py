"""Small runs of live vLLM, each for one thing."""

from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.live import build
from kvproof.live.observer import kept
from kvproof.live.observer.view import Names
from kvproof.live.options import watermark
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Compute, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, VOID
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from tests.driving import taken
from tests.watching import Counting, live_machine, watched

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
