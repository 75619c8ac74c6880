"""The same seed gives the same choices, whatever modules are imported."""

import sys
from pathlib import Path

import pytest

from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.stateful import sample


def taken() -> list[str]:
    """The events of some random episodes."""
    seen: list[str] = []

    def ended(run: Run) -> None:
        seen.extend(map(str, (step.event for step in run.steps)))

    sample(CLUSTERS["pd-default"], ModelMachine, invariants=(), examples=150, ended=ended)
    return seen


@pytest.mark.nightly
def test_constants_of_a_module_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = taken()
    numbers = ", ".join(str(each) for each in range(255))
    (tmp_path / "of_a_user.py").write_text(f"NUMBERS = [{numbers}]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        __import__("of_a_user")
        assert taken() == before
    finally:
        sys.modules.pop("of_a_user", None)
