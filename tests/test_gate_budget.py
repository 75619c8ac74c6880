"""A budget in which nothing can be driven is refused before anything long begins."""

import os
import time

import pytest

from kvproof.gate.search import budget, ticking
from kvproof.model.errors import UsageError
from tests.sentences import two_sentences


def test_a_budget_that_a_start_uses_up_is_refused_with_the_least_one() -> None:
    begin = time.monotonic()
    with pytest.raises(UsageError) as error:
        budget.require(1, os.environ, "import time; time.sleep(3600)")
    assert time.monotonic() - begin < 3000
    said = str(error.value)
    assert two_sentences(said)
    assert said.startswith("A budget of 1 s is used up before anything is driven: ")
    assert "Use --budget " in said


def test_a_budget_that_leaves_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measured", lambda *_: 5.0)
    with pytest.raises(UsageError, match="Use --budget 70 or more"):
        budget.require(33, {})
    budget.require(34, {})


def test_a_long_budget_is_not_measured() -> None:
    budget.require(budget.SURE_S, {}, "import time; time.sleep(3600)")


@pytest.mark.parametrize("start_s", [1.0, 17.0, 50.0])
def test_the_least_budget_is_enough(start_s: float) -> None:
    assert start_s * budget.TRIES <= budget.SEARCHED * budget.least(start_s)


def test_the_budget_that_is_advised_has_time_for_what_was_left() -> None:
    advised = budget.enough(270.0, 115.0)
    assert advised == 430
    assert budget.SEARCHED * advised >= 270.0 + 115.0


def test_the_line_moves_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(ticking, "EVERY_S", 0.001)
    monkeypatch.setattr(ticking.live_line, "show", shown.append)
    with ticking.Ticking(300, time.monotonic()) as line:
        line.show("importing both vLLMs ...")
        while len(shown) < 3:
            time.sleep(0.001)
    assert all("of 300 s: importing both vLLMs ..." in each for each in shown)
