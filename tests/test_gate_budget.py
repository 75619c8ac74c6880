"""A budget in which nothing can be driven is refused before anything long begins."""

import os
import time

import pytest

from kvproof.gate.search import budget
from kvproof.model.errors import UsageError
from tests.sentences import two_sentences


def test_a_budget_that_a_start_uses_up_is_refused_with_the_least_one() -> None:
    begin = time.monotonic()
    with pytest.raises(UsageError) as error:
        budget.require(1, os.environ, "import time; time.sleep(600)")
    assert time.monotonic() - begin < 300
    said = str(error.value)
    assert two_sentences(said)
    assert said.startswith("A budget of 1 s is used up before anything is driven: ")
    assert "Use --budget " in said


def test_a_budget_that_leaves_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measured", lambda *_: 5.0)
    with pytest.raises(UsageError, match="Use --budget 80 or more"):
        budget.require(39, {})
    budget.require(41, {})


def test_a_long_budget_is_not_measured() -> None:
    budget.require(budget.SURE_S, {}, "import time; time.sleep(600)")


@pytest.mark.parametrize("start_s", [1.0, 17.0, 50.0])
def test_the_least_budget_is_enough(start_s: float) -> None:
    assert start_s * budget.TRIES <= budget.SEARCHED * budget.least(start_s)
