"""A file of one's own that is not right gives an error of two sentences, and no traceback."""

import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from kvproof.cli.main import main
from kvproof.model.because import reason
from kvproof.model.discovery import declared
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.wording import sentences

FAULT = FAULTS["untouched_hits"]


def test_a_file_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = types.ModuleType("room_of_an_author")
    room.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, room.__name__, room)
    (tmp_path / "mine.py").write_text("FAULT = missing\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.py, line 1, cannot be imported \(Name.*\)\. Use "):
        list(declared(room, "FAULT"))


def test_the_file_has_the_name_of_what_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = types.ModuleType("another_room_of_an_author")
    room.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, room.__name__, room)
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name = 'yours'\n\nFAULT = Mine()\n", encoding="utf-8"
    )
    with pytest.raises(UsageError, match=r"mine\.py declares a FAULT named yours\. Use "):
        list(declared(room, "FAULT"))


def test_a_gap_without_a_value_is_named() -> None:
    stated = reason("is_so", "block {block} has {cnt} owners", count=2)
    with pytest.raises(UsageError, match=r"has the gap \{cnt\}, and no value for it\. Use .*count"):
        sentences((stated,))


def test_breaks_is_a_tuple() -> None:
    with pytest.raises(TypeError, match="breaks is no tuple"):
        replace(FAULT, breaks="references_are_exact")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"breaks": ("referenced_are_exact",)}, "no invariant named"),
        ({"cluster": "ful"}, "no cluster"),
    ],
)
def test_names_that_do_not_exist_are_refused(
    wrong: dict[str, object],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(FAULTS, FAULT.name, replace(FAULT, **wrong))  # type: ignore[arg-type]
    assert main(["explore", "--fault", FAULT.name, "--config", "full"]) == 2
    assert f"There is {named}" in capsys.readouterr().err
