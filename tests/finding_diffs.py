"""The diff of a finding's page, and vLLM's sources with it."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.findings import report_of

BLOCK = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = re.compile(r"^--- a/(.*)\n\+\+\+ b/(.*)\n@@ -\d+,\d+ \+\d+,\d+ @@", re.MULTILINE)


def diff_of(name: str) -> str:
    """The one diff of a page."""
    (diff,) = BLOCK.findall(report_of(name))
    return str(diff)


def offered(name: str) -> bool:
    """Whether a page has a diff: one that does harm is not offered."""
    return bool(BLOCK.findall(report_of(name)))


def files_of(diff: str) -> list[str]:
    """The files that a diff changes, below the folder of the package."""
    named = FILES.findall(diff)
    assert len(named) == diff.count("\n+++ ") > 0
    assert all(old == new and old.startswith("vllm/") for old, new in named)
    return [old for old, _ in named]


def sources() -> Path:
    """The folder in which the imported vLLM lies."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent


def patched(diff: str, folder: Path) -> None:
    """Copy the files that a diff changes into a folder, and apply it. It must change them all."""
    names = files_of(diff)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sources() / name, folder / name)
    # Inside a repository, git would take the paths for those of the repository, and change nothing.
    done = subprocess.run(
        ["git", "apply", "-p1", "-"],
        cwd=folder,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)},
        input=diff,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for name in names:
        assert (folder / name).read_bytes() != (sources() / name).read_bytes()


def overlay(diff: str, folder: Path) -> None:
    """A vLLM with the diff, in a folder to import it from: its other files are links."""
    patched(diff, folder)
    package = sources() / "vllm"
    for root, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        place = folder / "vllm" / Path(root).relative_to(package)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not (place / name).exists():
                (place / name).symlink_to(Path(root) / name)
