"""Speculative decoding on live vLLM: mistakes put back into its classes are found, and the drafter
is configured as vLLM configures one."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import Machine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.mistakes_of_drafts import MISTAKES
from tests.watching import watched

pytestmark = pytest.mark.live

EXAMPLES = 15


def run(name: str, invariants: list[str] | None, make: Callable[[Cluster], Machine]) -> Any:
    """Sample live vLLM over the traffic of the fault's preset."""
    return sample(
        CLUSTERS[FAULTS[name].cluster],
        make,
        None if invariants is None else [CHECKS[i] for i in invariants],
        examples=EXAMPLES,
        use_jobs=True,
        shrink=False,
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_vllm_as_released_is_green_and_with_the_mistake_is_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.live.machine import LiveMachine

    finds = MISTAKES[name].finds
    assert finds in FAULTS[name].breaks
    assert run(name, [finds], LiveMachine).verdict is Verdict.SAMPLED
    MISTAKES[name].patch(monkeypatch)
    outcome = run(name, [finds], LiveMachine)
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding.invariant == finds


@pytest.mark.parametrize("name", MISTAKES)
def test_no_known_deviation_passes_for_the_mistake(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(name, None, watched).verdict is Verdict.SAMPLED
    MISTAKES[name].patch(monkeypatch)
    outcome = run(name, None, watched)
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding.invariant in CHECKS


@pytest.mark.parametrize(("name", "eagle"), [("drafts", True), ("ngram-drafts", False)])
def test_the_scheduler_derives_what_the_model_says(name: str, eagle: bool) -> None:
    from kvproof.live import build

    cfg = CLUSTERS[name].engines[0]
    scheduler = build.scheduler(cfg, "fail")
    assert scheduler.num_spec_tokens == cfg.drafts
    assert scheduler.num_lookahead_tokens == cfg.lookahead
    assert scheduler.use_eagle_block_drop is eagle is bool(cfg.eagle_drop_tokens)
    scheduler.shutdown()
