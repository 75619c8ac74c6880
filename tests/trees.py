"""Made-up trees of vLLM for tests: packages of a few lines. A child process imports one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.live import children
from kvproof.live.trees import Tree, environment
from kvproof.model.errors import UsageError
from tests.sentences import two_sentences

PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SAYS = "import importlib.metadata as m, vllm.v1.core as c; print(c.NAME, m.version('vllm'))"


def made(root: Path, name: str = "here", version: str = "") -> Path:
    """A made-up package `vllm` in a folder, with metadata where a version is given. Returns the
    folder."""
    core = root / "vllm" / "v1" / "core"
    core.mkdir(parents=True)
    for folder in (root / "vllm", core.parent):
        (folder / "__init__.py").touch()
    (core / "__init__.py").write_text(f"NAME = {name!r}\n")
    if version:
        metadata(root, version)
    return root


def metadata(site: Path, version: str, of: str = "vllm", **more: str) -> None:
    """Write the metadata of vLLM to a folder of packages, and further files beside them."""
    folder = site / f"{of}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {of.replace('_', '-')}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text)
    for name, content in more.items():
        (folder / f"{name}.json").write_text(content)


def environment_in(root: Path, python: str = PYTHON) -> Path:
    """A virtual environment in a folder. Returns its folder of packages."""
    site = root / "lib" / python / "site-packages"
    site.mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return site


def imported(tree: Tree, program: str = SAYS) -> str:
    """What a process prints that imports the tree."""
    ran = children.run([sys.executable, "-c", program], env=environment(tree), timeout_s=600)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as refused:
        ask()
    assert two_sentences(str(refused.value)), str(refused.value)
    return str(refused.value)


def inside(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def git(folder: Path, *words: str) -> str:
    """What git prints, with a name for who commits and without the settings of this machine."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *who, *words]
    ran = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()
