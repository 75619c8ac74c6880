"""What judges does not lean on what is judged: an invariant imports data and its own arithmetic."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MODULES = {
    f"kvproof.model.{name}"
    for name in ("because", "config", "errors", "events", "ghost", "severity", "state", "step")
}
"""What may be imported whole: data, and how it is found."""

NAMES = {"kvproof.model.kv_events": {"Cleared", "Keys", "Removed", "Report", "Stored"}}
"""What may be imported of modules that also compute: types."""

REGISTRY = {"invariants": {"kvproof.model.spec.registry"}}
"""What a registry may import besides: the list of all checks has the guards of the spec."""

JUDGES = tuple(ROOT / folder for folder in ("invariants", "model/spec"))
"""Rooms whose files are looked at, where they are there."""


def imported(code: str) -> Iterator[tuple[str, str]]:
    """The modules a file imports from, wherever in it, each with the name; empty for the whole."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from ((node.module or "", alias.name) for alias in node.names)


def allowed(room: str, module: str, name: str) -> bool:
    """Whether a file of a room may import this."""
    whole = f"{module}.{name}" if name else module
    own = (
        (f"kvproof.{room}", "kvproof.invariants") if room == "invariants" else (f"kvproof.{room}",)
    )
    return (
        module.split(".")[0] in sys.stdlib_module_names
        or any(m == part or m.startswith(f"{part}.") for m in (module, whole) for part in own)
        or bool({module, whole} & MODULES)
        or name in NAMES.get(module, ())
        or module in REGISTRY.get(room, ())
    )


def offences(room: str, code: str) -> list[str]:
    """What a file of a room imports and may not."""
    return [f"{m} {n}".strip() for m, n in imported(code) if not allowed(room, m, n)]


FILES = [path for folder in JUDGES for path in sorted(folder.rglob("*.py"))]


def room_of(path: Path) -> str:
    """The room of a file, as a part of a module's name."""
    return next(
        folder.relative_to(ROOT).as_posix().replace("/", ".")
        for folder in JUDGES
        if folder in path.parents
    )


@pytest.mark.parametrize("path", FILES, ids=[p.relative_to(ROOT).as_posix() for p in FILES])
def test_a_judge_imports_data_only(path: Path) -> None:
    assert offences(room_of(path), path.read_text(encoding="utf-8")) == []


def test_the_files_are_those_of_the_invariants() -> None:
    from kvproof.invariants.registry import INVARIANTS

    names = {path.stem for path in FILES if room_of(path) == "invariants"}
    assert set(INVARIANTS) | {"arithmetic", "hits", "parties", "sometimes"} <= names


@pytest.mark.parametrize(
    "line",
    [
        "from kvproof.model import counts",
        "import kvproof.model.reference.rules",
        "from kvproof.model.reference.blocks.groups import blocks_needed",
        "from kvproof.model.kv_events import replayed",
        "from kvproof.model import capacity as state",
        "from kvproof import model",
        "from kvproof.model.kv_events import *",
        "from kvproof.strategies.count_conformance import ties",
        "import z3",
        "def check():\n    from kvproof.model import turns",
    ],
)
def test_a_planted_import_is_caught(line: str) -> None:
    real = (ROOT / "invariants" / "hit_is_the_longest.py").read_text(encoding="utf-8")
    assert offences("invariants", real) == []
    assert len(offences("invariants", f"{real}\n{line}\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from kvproof.model import state",
        "from kvproof.model.state import Request",
        "import math",
        "from kvproof.invariants.hits import missing",
        "from kvproof.model.kv_events import Stored",
    ],
)
def test_data_may_be_imported(line: str) -> None:
    assert offences("invariants", line) == []
