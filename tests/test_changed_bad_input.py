"""Trees that nobody vouches for: what cannot be read counts as changed, and nothing dies."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.gate.source import files
from kvproof.gate.source.changes import Changes, changed
from kvproof.model.errors import UsageError
from tests.packages import CORE, package

GOOD = b"def f():\n    return 1\n"

BAD = {
    "no program": b"def f(:\n",
    "not UTF-8": b"def f():\n    return '\xff'\n",
    "zero bytes": b"def f():\n    return 1\n\0",
    "nested too deeply": b"x = " + b"(" * 5000 + b")" * 5000,
    "a long chain": b"x = " + b"-" * 5000 + b"1",
    "a long list of cases": b"if x: pass\n" + b"elif x: pass\n" * 5000,
    "an unknown encoding": b"# coding: nothing\nx = 1\n",
    "a number that is too long": b"x = " + b"1" * 5000,
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_program_has_changed_as_a_whole(name: str, tmp_path: Path) -> None:
    good = package(tmp_path / "good", {CORE: GOOD})
    bad = package(tmp_path / "bad", {CORE: BAD[name]})
    other = package(tmp_path / "other", {CORE: BAD[name] + b"\n# more\n"})
    for pair in ((good, bad), (bad, good), (bad, other)):
        changes = changed(*pair)
        assert "<module>" in [each.name for each in changes.accounting]
        assert all(each.line >= 1 for each in changes.accounting)
    assert changed(bad, bad) == Changes((), ())
    assert changed(bad, package(tmp_path / "same", {CORE: BAD[name]})) == Changes((), ())


def test_a_bad_file_that_nobody_uses(tmp_path: Path) -> None:
    """It is no part of the accounting, yet vLLM may import it and die: head has to be run."""
    text = "from vllm.bad import x\ny = x\n"
    base = package(tmp_path / "base", {CORE: text, "bad.py": "x = 1", "worse.py": "x = 1"})
    head = package(tmp_path / "head", {CORE: text, "bad.py": "x = ", "worse.py": "x = "})
    changes = changed(base, head)
    assert [each.key for each in changes.accounting] == ["bad.py:<module>", "worse.py:<module>"]
    back = changed(head, base)
    assert [each.key for each in back.accounting] == ["bad.py:<module>"]
    assert [each.key for each in back.others] == ["worse.py:<module>"]


def test_a_large_file_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PROGRAM_MAX_MIB", 0)
    base = package(tmp_path / "base", {CORE: GOOD})
    head = package(tmp_path / "head", {CORE: GOOD + b"# more\n"})
    assert [each.name for each in changed(base, head).accounting] == ["<module>"]
    assert changed(base, base) == Changes((), ())


@pytest.mark.parametrize(
    "put",
    [os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(path)],
    ids=["pipe", "to nowhere", "to itself"],
)
def test_what_is_no_file(put: Callable[[Path], None], tmp_path: Path) -> None:
    base = package(tmp_path / "base", {CORE: GOOD})
    head = package(tmp_path / "head", {})
    (head / CORE).parent.mkdir(parents=True)
    put(head / CORE)
    assert [each.name for each in changed(base, head).accounting] == ["<module>"]


def test_a_linked_folder_is_not_entered(tmp_path: Path) -> None:
    """It may lead to all files of the machine, or to itself."""
    base = package(tmp_path / "base", {CORE: GOOD})
    head = package(tmp_path / "head", {CORE: GOOD})
    (base / "all").symlink_to("/")
    (head / "all").symlink_to("/")
    assert changed(base, head) == Changes((), ())
    (head / "v1" / "core" / "self").symlink_to(head)
    changes = changed(base, head)
    assert [(each.key, each.kind) for each in changes.accounting] == [
        ("v1/core/self:<module>", "changed")
    ]


def test_a_folder_that_is_no_package_of_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, missing, empty = package(tmp_path, {CORE: GOOD}), tmp_path / "none", tmp_path / "no files"
    empty.mkdir()
    for pair in ((good, missing), (missing, good), (good, empty), (empty, good)):
        with pytest.raises(UsageError, match=r"no.* is not a Python package\. Use the folder"):
            changed(*pair)
    monkeypatch.setattr(files, "FILES_MAX", 1)
    with pytest.raises(UsageError, match=r"more than 1 Python files\. Use the folder"):
        changed(good, good)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them may be equal or not."""

    def refuse(*_: object) -> bytes:
        raise UsageError("It cannot be read. Use another one.")

    base = package(tmp_path / "base", {CORE: GOOD})
    head = package(tmp_path / "head", {CORE: GOOD})
    monkeypatch.setattr(files, "read_bytes", refuse)
    assert [each.key for each in changed(base, head).accounting] == [f"{CORE}:<module>"]


def test_a_linked_file_is_what_it_leads_to(tmp_path: Path) -> None:
    base = package(tmp_path / "base", {CORE: GOOD})
    (tmp_path / "store.py").write_bytes(GOOD)
    head = package(tmp_path / "head", {"v1/__init__.py": ""})
    (head / "v1" / "core").mkdir()
    (head / CORE).symlink_to(tmp_path / "store.py")
    assert changed(base, head).accounting == ()
