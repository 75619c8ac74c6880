"""A file of one's own that is not right gives an error of two sentences, and no traceback."""

import re
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from kvproof.cli.main import main
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import reason
from kvproof.model.discovery import modules
from kvproof.model.errors import UsageError
from kvproof.model.faults import fault as fault_module
from kvproof.model.faults.registry import FAULTS
from kvproof.model.wording import sentences

FAULT = FAULTS["untouched_hits"]


HEAD = """from kvproof.model.faults.fault import fault

COMMON = dict(origin="", breaks="references_are_exact", cluster="full", trace_events=3)

"""
MINE = """@fault("a mistake of mine", replaces={replaces!r}, **COMMON)
def {name}(engine, _blocks):
    return engine
"""
TOUCH = "reference.blocks.pool:touch"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", None),
        (MINE.format(name="mine", replaces=TOUCH), None),
        ("missing\n", r"NameError: name 'missing' is not defined"),
        (MINE.format(name="mine", replaces="reference.blocks.pond:touch"), r"has no module .*pond"),
        (
            MINE.format(name="mine", replaces="reference.blocks.pool:tuch"),
            r"has no function .*tuch",
        ),
        (MINE.format(name="mine", replaces="reference.blocks.pool:grown"), r"has no function"),
        (MINE.format(name="mine", replaces="reference.blocks.pool:promote"), r"other arguments"),
        (
            MINE.format(name="untouched_hits", replaces=TOUCH),
            r"Two faults are named untouched_hits",
        ),
        ("@fault('a mistake')\ndef mine(): pass\n", r"TypeError: .* 'origin'"),
        ("import kvproof.missing\n", r"ModuleNotFoundError: No module named 'kvproof\.missing'"),
        ("def mine(:\n", r"SyntaxError"),
    ],
)
def test_a_fault_that_is_not_right_is_told_with_its_line(
    written: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = types.ModuleType("faults_of_an_author")
    folder.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, folder.__name__, folder)
    monkeypatch.delitem(sys.modules, f"{folder.__name__}.mine", raising=False)
    monkeypatch.setattr(fault_module, "REGISTERED", dict(FAULTS))
    (tmp_path / "mine.py").write_text(HEAD + written, encoding="utf-8")
    if told is None:
        modules(folder)
        assert ("mine" in fault_module.REGISTERED) is bool(written)
        return
    with pytest.raises(UsageError, match=rf"mine\.py.*{told}.*\. Use ") as refused:
        modules(folder)
    assert re.search(r"mine\.py, line \d+", str(refused.value))


def test_a_gap_without_a_value_is_named() -> None:
    stated = reason("is_so", "block {block} has {cnt} owners", count=2)
    with pytest.raises(UsageError, match=r"has the gap \{cnt\}, and no value for it\. Use .*count"):
        sentences((stated,))


def test_a_check_names_a_fault_that_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(CHECKS["pool_adds_up"], killed_by="doubly_free")
    monkeypatch.setitem(CHECKS, wrong.id, wrong)
    assert main(["explore", "--config", "full"]) == 2
    said = capsys.readouterr().err
    assert "pool_adds_up says killed_by='doubly_free', and there is no such fault" in said
    assert "Use double_free, or leave killed_by out" in said


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
