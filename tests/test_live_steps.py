"""Mistakes of a scheduler step in live vLLM: each is found by its invariant, and vLLM as released
is green there."""

from typing import Any

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.live.observer import kept
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict
from tests.mistakes_of_steps import (
    new_blocks_are_noted_for_ever,
    worker_is_told_one_too_many,
)

pytestmark = pytest.mark.live

RELEASED = 20
"""Episodes of vLLM as released. `test_live_stateful` asks all invariants of it, in all presets."""


def run(preset: str, invariant: str, use_jobs: bool = True, examples: int = 90) -> Outcome:
    from kvproof.live.machine import LiveMachine

    return sample(
        CLUSTERS[preset],
        LiveMachine,
        [INVARIANTS[invariant]],
        examples=examples,
        use_jobs=use_jobs,
        shrink=False,
    )


def test_a_list_that_nobody_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    released = run("full", "idle_engine_keeps_nothing", False, examples=RELEASED)
    assert released.verdict is Verdict.SAMPLED
    new_blocks_are_noted_for_ever(monkeypatch)
    outcome = run("full", "idle_engine_keeps_nothing", False)
    assert outcome.finding is not None
    assert "new_block_ids" in outcome.finding.sentence


def test_a_worker_that_is_told_a_wrong_position_writes_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker_is_told_one_too_many(monkeypatch)
    assert run("full", "request_reads_its_own_prefix", False).verdict is Verdict.VIOLATED


def test_a_session_that_waits_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    released = run("sessions-limited", "worker_forgets_who_left", examples=RELEASED)
    assert released.verdict is Verdict.SAMPLED
    nobody = property(lambda _: 0, lambda *_: None)
    monkeypatch.setattr(Scheduler, "num_waiting_for_streaming_input", nobody, raising=False)
    assert run("sessions-limited", "worker_forgets_who_left").verdict is Verdict.VIOLATED


class Scheduler:
    """A class of vLLM, for the walk, with a list, a bounded list and an inner object."""

    def __init__(self, inner: Any = None) -> None:
        self.notes: list[str] = []
        self.inner = inner


Scheduler.__module__ = "vllm.made_up"


def test_what_is_taken_away_and_comes_again_is_not_kept() -> None:
    """Notes of one step, which the next one takes away, and makes again for a repeated prompt."""
    scheduler = Scheduler()
    leftovers = kept.Leftovers(scheduler, "E")
    for hashes in (1, 2, 3):
        scheduler.notes[:] = [f"hash {n}" for n in range(hashes)]
        leftovers.idle()
        scheduler.notes[:] = [f"hash {n}" for n in range(hashes)]
        assert not leftovers.stepped()


def test_what_stays_once_is_known_and_what_grows_is_kept() -> None:
    scheduler = Scheduler(Scheduler())
    leftovers = kept.Leftovers(scheduler, "E")
    seen = []
    for name in ("r0", "r1", "r2"):
        scheduler.inner.notes.append(name)  # stays
        scheduler.notes.append("peer") if name == "r0" else None  # stays, and does not grow
        step_notes = {name}
        scheduler.step = step_notes  # type: ignore[attr-defined]
        leftovers.idle()
        step_notes.clear()
        seen += leftovers.stepped()
    assert {each.where for each in seen} == {"Scheduler.inner.notes"}
    assert [each.items for each in seen] == [2, 3]
