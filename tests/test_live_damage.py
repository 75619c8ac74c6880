"""What vLLM does wrong without an exception is seen, and ends the run and not kvproof."""

import itertools
from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live import endless
from kvproof.live.blame import place
from kvproof.live.damage import DoesNotEnd
from kvproof.model.events import Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death
from kvproof.strategies.run import Run

pytestmark = pytest.mark.live


def counted_for_ever() -> None:
    for number in itertools.count():
        twice(number)


def twice(number: int) -> int:
    return sum(number for _ in range(2))


def test_the_function_that_does_not_end_is_named() -> None:
    with pytest.raises(DoesNotEnd) as raised, endless.watched():
        counted_for_ever()
    assert place(raised.value).name == counted_for_ever.__name__


def test_a_step_that_does_not_end_is_a_dead_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    from kvproof.live.machine import LiveMachine

    def schedule(self: Any, *_: Any, **__: Any) -> None:
        while self is not None:
            pass

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    machine = LiveMachine(CLUSTERS["full"])
    machine.take(Submit("E", "r0"))
    step = machine.take(Schedule("E"))
    assert step.after.engine("E").dead == Death(
        "DoesNotEnd", "schedule", "it runs for more than 3 s"
    )
    [finding] = broken(machine.cluster, step, INVARIANTS.values())
    assert finding.invariant == "engine_survives"


def test_a_free_queue_that_is_a_circle_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks go back although another request holds them, so the queue has one of them twice."""
    from vllm.v1.core.block_pool import BlockPool

    from kvproof.live.machine import LiveMachine

    def free_blocks(self: Any, ordered_blocks: Any, *_: Any, **__: Any) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.is_null:
                self.free_block_queue.append(block)

    monkeypatch.setattr(BlockPool, "free_blocks", free_blocks)
    found: set[str] = set()
    for name in ("full", "partial-tight", "window"):
        run = Run(LiveMachine(CLUSTERS[name]), ())
        for _ in range(60):
            if run.dead or not run.stimuli:
                break
            run.take_one(run.stimuli[0])
            found |= {
                each.invariant
                for each in broken(run.machine.cluster, run.steps[-1], INVARIANTS.values())
            }
    assert "pool_adds_up" in found
