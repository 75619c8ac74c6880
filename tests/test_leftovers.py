"""What an idle engine keeps: lists that grow with each request, in a made-up class of vLLM."""

from typing import Any

import pytest

from kvproof.live.observer import kept

pytestmark = pytest.mark.live


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
