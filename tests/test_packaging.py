"""What is installed is what is here: packages, program, version. No network is needed."""

import importlib
import os
import re
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import kvproof
from tests.processes import python

ROOT = Path(__file__).parent.parent
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


def test_every_folder_with_code_is_a_package() -> None:
    assert len(packages_here()) > 20
    for name in packages_here():
        assert PACKAGE.parent.joinpath(*name.split("."), "__init__.py").is_file()


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
