"""Options that deployments set, on live vLLM: they reach it, and change what it does."""

from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Compute, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, VOID
from tests.driving import taken

pytestmark = pytest.mark.live

JOBS = (Job("r0", "abcdefgh"), Job("r1", "uvwxyz"))


def first_step(jobs: tuple[Job, ...] = JOBS, **options: Any) -> tuple[dict[str, int], list[str]]:
    """The tokens that the first step of live vLLM computes, and what that breaks."""
    from kvproof.live.machine import LiveMachine

    engine = EngineConfig(
        "E", (Group("full", 2),), **{"num_blocks": 6, "chunk_tokens": 10, **options}
    )
    machine = LiveMachine(Cluster("c", (engine,), jobs))
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
    from kvproof.live.options import watermark

    for blocks in {1, total // 2, total - 1}:
        cfg = EngineConfig("E", (Group("full", 2),), num_blocks=total, watermark_blocks=blocks)
        assert int(watermark(cfg) * total) == blocks


def preempted_in_flight() -> tuple[str, str]:
    """On live P: the fate of an output whose request was preempted after the step was dispatched,
    and the role of P."""
    from kvproof.live.machine import LiveMachine

    machine = taken(
        LiveMachine(CLUSTERS["pd-roles-preempting"]),
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
    from kvproof.live import build

    cfg = CLUSTERS[name].engines[0]
    scheduler = build.scheduler(cfg, "fail")
    assert scheduler.num_spec_tokens == cfg.drafts
    assert scheduler.num_lookahead_tokens == cfg.lookahead
    assert scheduler.use_eagle_block_drop is eagle is bool(cfg.eagle_drop_tokens)
    scheduler.shutdown()
