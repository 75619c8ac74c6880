"""How the tree is built: what may import what, one place for files, packages, CI."""

import ast
import importlib
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import kvproof
import kvproof.invariants
from tests.processes import python

# Imports


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
    "machines": ("watch/parts/zeroed.py", "from kvproof.model.reference import apply"),
    "environment": ("model/environment/pulls.py", "from kvproof.model.arithmetic import counts"),
    "reference": ("model/state.py", "from kvproof.model.reference import scheduler"),
}
"""For each contract a file, and an import that breaks it."""

JUDGES = kvproof.invariants
ASKED = {
    *("because", "config.sides", "discovery", "errors", "events", "numbered", "phases"),
}
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
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("kvproof", cache_dir=None)
    files = nx.DiGraph(
        (file, other)
        for file in graph.modules
        for other in graph.find_modules_directly_imported_by(file)
    )
    circles = [sorted(c) for c in nx.strongly_connected_components(files) if len(c) > 1]
    assert circles == []


def test_a_judge_calls_no_function_of_what_is_judged() -> None:
    """Of a file that the contract of judges allows for its types, too."""
    allowed = (JUDGES.__name__, *(f"kvproof.model.{name}" for name in ASKED))
    files = pkgutil.iter_modules(JUDGES.__path__, f"{JUDGES.__name__}.")
    called = {
        f"{value.__module__}.{value.__name__}"
        for judge in (importlib.import_module(file.name) for file in files)
        for value in vars(judge).values()
        if inspect.isfunction(value) and value.__module__.startswith("kvproof.")
    }
    assert {name for name in called if not name.startswith(allowed)} == set()


def product() -> dict[str, str]:
    """The files of the product with their texts."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    paths += sorted((ROOT / "src" / "kvproof").glob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


# Files are opened in one place


OPEN_CALLS = {"open", "fdopen"}
OPEN_METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "fdopen", "mkstemp"),
    *("mkdtemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "copyfile", "copy2"),
    *("copytree", "move", "tofile", "fromfile", "savez", "memmap", "loadtxt", "savetxt", "parse"),
}
"""Names of functions and methods that open a file themselves."""

OPENED = {
    "model/files": "the one place",
    "cli/start.py": "opens the null device where a standard stream is closed",
    "live/reproducer/template.py": "text of generated files, which make a config.json for vLLM",
    "gate/source/probes.py": "parses what Python's own loader has read of vLLM",
    "gate/source/units.py": "parses what `model/files` has read: `ast.parse` takes a text",
    "gate/search/side.py": "keeps what a process prints, in a temporary file",
    "cli/gate_side.py": "writes to pipes",
    "cli/sample.py": "makes a temporary folder for the trace that a process of its own replays",
    "gate/connectors/alone.py": "makes a temporary folder for a plan that its own process plays",
    "live/connectors/episode.py": "makes a temporary folder for the files of a connector",
    "live/connectors/listeners.py": "reads Linux's list of the files that a process has mapped",
    "live/connectors/stored.py": "makes a temporary folder for the files of a store",
    "live/build.py": "makes a temporary folder of its own, for the config.json that vLLM reads",
}
"""The files of the product that open files, and why."""


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The object and the name of each call; the object is empty for a plain function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value), node.func.attr


def opens(text: str) -> list[str]:
    """The calls in a program that open files."""
    found = []
    for owner, name in calls(ast.parse(text)):
        plain = not owner and name in OPEN_CALLS
        if plain or (owner and name in OPEN_METHODS):
            found.append(f"{owner}.{name}".strip("."))
    return found


def allowed(path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in OPENED)


def test_files_are_opened_in_one_place() -> None:
    texts = product()
    found = {path: names for path, text in texts.items() if (names := opens(text))}
    assert {path: names for path, names in found.items() if not allowed(path)} == {}
    used = {place for place in OPENED for path in found if path.startswith(place)}
    assert used == set(OPENED), "an exception that is not needed"


# What is installed is what is here


PACKAGE = ROOT / "src" / "kvproof"
"""Its links are the packages that are installed."""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_here() -> set[str]:
    """The folders with Python files, as names of packages."""
    found = set()
    for folder, inner, files in os.walk(PACKAGE, followlinks=True):
        inner[:] = [name for name in inner if name not in ("__pycache__", "findings")]  # data
        if any(name.endswith(".py") for name in files):
            found.add(".".join(Path(folder).relative_to(PACKAGE.parent).parts))
    return found


def data_here(project: dict[str, Any]) -> set[str]:
    """The files that pyproject.toml names as data of a package."""
    return {
        path.relative_to(PACKAGE.parent).as_posix()
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in PACKAGE.parent.joinpath(*package.split(".")).glob(pattern)
    }


def test_the_program_is_the_one_of_the_module(project: dict[str, Any]) -> None:
    module, function = project["project"]["scripts"]["kvproof"].split(":")
    program = getattr(importlib.import_module(module), function)
    assert program is importlib.import_module("kvproof.cli.start").main


def test_the_newest_change_is_of_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == kvproof.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made from a copy of the sources, since building leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "kvproof-traces")
    shutil.copytree(ROOT, sources, symlinks=True, ignore=ignored)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = python("-c", build, folder, cwd=sources)
    assert done.returncode == 0, done.stderr
    [made] = folder.glob("*.whl")
    return made


def test_the_wheel_claims_one_name_and_holds_code_and_data_only(
    wheel: Path, project: dict[str, Any]
) -> None:
    held = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert {path.parts[0] for path in held} == {
        "kvproof",
        f"kvproof-{kvproof.__version__}.dist-info",
    }
    inside = [path for path in held if path.parts[0] == "kvproof"]
    code = {path for path in inside if path.suffix == ".py"}
    assert {".".join(path.parent.parts) for path in code} == packages_here()
    assert {path.as_posix() for path in inside if path not in code} == data_here(project)
    assert "kvproof/py.typed" in data_here(project)


def test_the_program_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = "import sys, kvproof.cli.main as m; print(m.__file__); sys.exit(m.main(sys.argv[1:]))"
    command = ("explore", "--config", "full")
    done = python("-c", program, *command, cwd=tmp_path, first=[tmp_path / "site"])
    assert done.returncode == 0, done.stderr
    file, answer, *_ = done.stdout.splitlines()
    assert Path(file).is_relative_to(tmp_path)
    assert answer.startswith("EXHAUSTED")


# CI and the Makefile


COMMANDS = re.findall(
    r"^ {4}(make [^#\n]*?) *(?:#.*)?$",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)

STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
env | cut -d= -f1 | sort > "$CALLS.$1"
"""

OF_THE_SHELL = {"_", "OLDPWD", "PWD", "SHLVL", "SHELLOPTS"}


def test_ci_runs_the_commands_of_the_readme_and_sets_no_variable(tmp_path: Path) -> None:
    (tmp_path / "make").write_text(STUB, encoding="utf-8")
    (tmp_path / "make").chmod(0o755)
    calls = tmp_path / "calls"
    given = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run([ROOT / ".ci" / "run"], env=given, cwd=tmp_path, check=True)
    assert calls.read_text(encoding="utf-8").splitlines() == COMMANDS
    assert COMMANDS == ["make stateful", "make test"]
    for command in COMMANDS:
        seen = set(Path(f"{calls}.{command.split()[1]}").read_text(encoding="utf-8").split())
        assert seen - OF_THE_SHELL == set(given)
