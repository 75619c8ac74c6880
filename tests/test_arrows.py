"""What may import what: the contracts of pyproject.toml, and what they cannot say."""

import importlib
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

import kvproof.invariants

grimp = pytest.importorskip("grimp")

ROOT = Path(__file__).parent.parent
ROOMS = sorted(path.name for path in (ROOT / "src" / "kvproof").iterdir() if path.is_symlink())

PLANTED = {
    "rooms": ("model/termination.py", "from kvproof.strategies import drain"),
    "circles": ("strategies/run.py", "from kvproof.strategies import drain"),
    "vllm": ("reports/screen.py", "import vllm.config"),
    "watch": ("watch/parts/transfers.py", "from kvproof.live.driver import nixl"),
    "observer": ("live/observer/kept.py", "from kvproof.live.driver import worker"),
    "model": ("model/ghost.py", "from kvproof.model import traces"),
    "judges": ("invariants/blocks.py", "from kvproof.model.arithmetic import counts"),
    "machines": ("watch/parts/idle.py", "from kvproof.model.reference import apply"),
    "environment": ("model/environment/turns.py", "from kvproof.model.arithmetic import counts"),
    "reference": ("model/state.py", "from kvproof.model.reference import scheduler"),
}
"""For each contract a file, and an import that breaks it."""

JUDGES = kvproof.invariants
ASKED = {"because", "config.sides", "discovery", "errors", "events", "numbered", "phases"}
"""Files of the model of which a judge may call functions: those that put a result into words, the
table of a transfer's phases, the names of transfers and which engine sends, the one that numbers
blocks, and the one by which a registry finds its files."""


def lint(folder: Path, *options: str) -> str:
    """What lint-imports prints of the tree in a folder."""
    program = "from importlinter.cli import lint_imports_command as lint; lint()"
    command = [sys.executable, "-c", program, "--no-cache", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_the_contracts_are_kept() -> None:
    assert ", 0 broken." in re.sub(r"\s+", " ", said := lint(ROOT)), said


def test_each_contract_notices_a_planted_import(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room)
    for file, line in PLANTED.values():
        with (tmp_path / file).open("a", encoding="utf-8") as opened:
            opened.write(f"\n\ndef planted() -> None:\n    {line}\n")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert [contract["id"] for contract in contracts] == list(PLANTED)
    said = lint(tmp_path)
    assert f"Contracts: 0 kept, {len(PLANTED)} broken." in said, said


def test_no_file_is_in_a_circle() -> None:
    """A package and a file inside it included, of which the contracts do not speak."""
    graph = grimp.build_graph("kvproof", cache_dir=None)
    files = nx.DiGraph(
        (file, other)
        for file in graph.modules
        for other in graph.find_modules_directly_imported_by(file)
    )
    circles = [sorted(c) for c in nx.strongly_connected_components(files) if len(c) > 1]
    assert circles == []


def judges() -> Iterator[ModuleType]:
    """The modules of the checks."""
    for file in pkgutil.iter_modules(JUDGES.__path__, f"{JUDGES.__name__}."):
        yield importlib.import_module(file.name)


def test_a_judge_calls_no_function_of_what_is_judged() -> None:
    allowed = (JUDGES.__name__, *(f"kvproof.model.{name}" for name in ASKED))
    called = {
        f"{value.__module__}.{value.__name__}"
        for judge in judges()
        for value in vars(judge).values()
        if inspect.isfunction(value) and value.__module__.startswith("kvproof.")
    }
    assert {name for name in called if not name.startswith(allowed)} == set()
