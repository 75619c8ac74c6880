"""A copy of this tree to change, and programs that run in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "tests" / "testdata" / "one_file"
"""An invariant, a guard, a fault, a preset and a known finding, a file each."""

LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv", ".*cache", "build", "*.egg-info", "__pycache__", "kvproof-traces")
)


def copied(tree: Path) -> Path:
    """The sources, copied to a folder that is not there yet."""
    return Path(shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT))


def with_example(folder: Path) -> Path:
    """A copy in a folder, with the files that the how-to pages write."""
    tree = copied(folder / "tree")
    shutil.copytree(EXAMPLE, tree, dirs_exist_ok=True)
    return tree


def run(tree: Path, *command: str, first: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `python -m COMMAND` with the packages of a copy, and before them those of a folder."""
    path = [*([first] if first else []), tree / "src"]
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )
