"""A budget in which nothing can be driven, and the line that shows how much of it is used."""

import time

import pytest

from kvproof.gate.search import budget, ticking


def test_a_budget_that_a_start_has_used_up_names_one_with_time_for_workloads() -> None:
    said = budget.too_short(30, 30)
    assert said.startswith("a budget of 30 s is used up before anything is driven: ")
    assert said.endswith("use --budget 70 or more")


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
