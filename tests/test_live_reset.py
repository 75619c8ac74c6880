"""Resets of live vLLM's prefix cache under load."""

from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.events import Complete, Event, ResetPrefixCache, ResetRunning, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run
from tests.watching import watched

pytestmark = pytest.mark.live

BEGIN: tuple[Event, ...] = (Submit("E", "r0"), Schedule("E"), Complete("E"))


@pytest.mark.parametrize("reset", [ResetPrefixCache("E"), ResetRunning("E")])
def test_a_reset_under_load_satisfies_the_spec(reset: Event) -> None:
    machine = watched(CLUSTERS["resetting"])
    run = Run(machine, CHECKS.values())
    for event in (*BEGIN, reset, Submit("E", "r1"), Schedule("E"), Complete("E")):
        if event in run.stimuli:
            run.take(event)
    assert reset in [step.event for step in run.steps]
    assert machine.judged == len(run.steps)
    assert not machine.met
    machine.close()


def test_a_reset_that_leaves_blocks_in_the_cache_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.block_pool import BlockPool

    from kvproof.live.machine import LiveMachine

    def partly(pool: Any) -> bool:
        for block in pool.free_block_queue.get_all_free_blocks():
            pool._maybe_evict_cached_block(block)
        return True

    machine = LiveMachine(CLUSTERS["resetting"])
    for event in BEGIN:
        machine.take(event)
    monkeypatch.setattr(BlockPool, "reset_prefix_cache", partly)
    step = machine.take(ResetPrefixCache("E"))
    machine.close()
    found = [f.invariant for f in broken(machine.cluster, step, INVARIANTS.values())]
    assert "reset_is_whole" in found
