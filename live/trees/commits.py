"""Commits of vLLM in a git clone, unpacked into the cache folder. Each takes 57 MB there.

The commits that were not used for the longest time are removed where all take more than a limit,
but never one that a process is using. Releases that were installed stay.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kvproof.live import children
from kvproof.live.availability import UNKNOWN_VERSION
from kvproof.live.releases import cache_folder
from kvproof.live.trees.mirror import mirrored, remove_orphans, wheel
from kvproof.live.trees.tree import Tree
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import (
    appear,
    hold,
    made_folder,
    part_of,
    remove_unused,
    size_of,
    unpack,
)
from kvproof.model.files.reading import printable, shown

SHORT = 10
"""The number of digits of a commit's hash that people read."""

REDIRECT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""Environment variables that make git use another clone. They are set where a hook of git runs
kvproof."""

FIND = ("rev-parse", "--verify", "--quiet", "--end-of-options")


def commit(repo: Path, ref: str, cache: Path | None) -> Tree:
    """The vLLM of a commit of a clone, which may be bare. Its folder `vllm` is unpacked once, and
    kept by git's hash of it, where the cache folder has room (see `kept`). Raises UsageError where
    git, the clone, the commit or its vLLM is missing, or where the cache folder cannot be written
    to."""
    clone = _Clone(repo)
    number = clone.answer([*FIND, f"{ref}^{{commit}}"]) if ref else ""
    if not number:
        raise UsageError(
            f"The clone {shown(repo)} has no commit {shown(ref or repr(ref))}. "
            f"Use {clone.to_get_it()}."
        )
    content = clone.answer([*FIND, f"{number}:vllm"])
    if not content or not clone.answer([*FIND, f"{number}:vllm/__init__.py"]):
        raise UsageError(
            f"The commit {shown(ref)} of {shown(repo)} has no package vllm. "
            "Use a clone of vLLM, and a commit with the package vllm."
        )
    folder = cache_folder(cache)
    kept = made_folder(folder / "commits") / content
    fresh = False
    while not hold(kept):
        fresh = True
        with part_of(kept) as part:
            clone.unpack(number, ref, part)
            appear(part, kept)
    if fresh:
        shrink(folder)
    package = Path(os.path.realpath(kept)) / "vllm"
    site = mirrored(package, UNKNOWN_VERSION, folder, wheel())
    name = number[:SHORT] if number.startswith(ref) else f"{printable(ref)} ({number[:SHORT]})"
    return Tree(name, package, (site,), UNKNOWN_VERSION)


def require_clone(repo: Path) -> None:
    """Raise UsageError where a folder is no git clone, or git is missing."""
    _Clone(repo)


class _Clone:
    """git, for one clone. It never contacts a server, and reads no settings of a work tree."""

    def __init__(self, repo: Path) -> None:
        self.repo = Path(os.path.abspath(os.path.expanduser(repo)))
        program = shutil.which("git")
        if program is None:
            raise UsageError("There is no git on this machine. Use --vllm with a folder instead.")
        self.git = program
        ran = self._run(["rev-parse", "--git-dir"])
        if ran.returncode:
            raise UsageError(
                f"{shown(repo)} is no git clone ({_why(ran)}). Use the folder of a clone of vLLM."
            )

    def answer(self, words: Sequence[str]) -> str:
        """The answer of git in one line, empty where it fails."""
        ran = self._run(words)
        return "" if ran.returncode else ran.stdout.strip()

    def to_get_it(self) -> str:
        """The advice for a commit that is missing."""
        if self.answer(["rev-parse", "--is-shallow-repository"]) == "true":
            return "git fetch --unshallow first, as this clone is shallow, or fetch that commit"
        return "a branch, a tag or a commit that git log shows there, or git fetch it first"

    def unpack(self, number: str, ref: str, folder: Path) -> None:
        """Unpack the folder `vllm` of a commit to a folder. Raises UsageError."""
        archive = Path(os.path.abspath(folder)) / "vllm.tar"  # git works in the clone
        ran = self._run(["archive", "--format=tar", f"--output={archive}", number, "--", "vllm"])
        if ran.returncode:
            raise UsageError(
                f"git cannot unpack {shown(ref)} of {shown(self.repo)} ({_why(ran)}). Use a whole "
                "clone, or git fetch --refetch where it was made with --filter."
            )
        unpack(archive, folder)
        archive.unlink()

    def _run(self, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        own = {name: value for name, value in os.environ.items() if name not in REDIRECT}
        env = own | {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        return children.run([self.git, "-C", str(self.repo), *words], env=env)


def _why(ran: "subprocess.CompletedProcess[str]") -> str:
    """The last line that git says, without its full stop."""
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {ran.returncode}"
    return printable(last.removeprefix("fatal: ").rstrip("."))


LIMIT = "KVPROOF_CACHE_GB"
"""The environment variable with the limit on commits and their mirrors, in GB."""

LIMIT_GB = 2.0

GB = 1e9


class KeptSize(NamedTuple):
    """How many commits of vLLM a cache folder has, and the bytes that these and all mirrors
    take."""

    commits: int
    size: int


def limit_bytes() -> float:
    """The most that commits and mirrors may take, in bytes. Raises UsageError."""
    given = os.environ.get(LIMIT, "")
    try:
        limit_gb = float(given) if given else LIMIT_GB
    except ValueError:
        limit_gb = -1.0
    if not 0 <= limit_gb < float("inf"):
        raise UsageError(f"{LIMIT} is {given!r}, which is no size. Use a number of GB, such as 2.")
    return limit_gb * GB


def kept_size(cache: Path) -> KeptSize:
    """The number of commits and the bytes of vLLM in a cache folder."""
    sizes = _sizes(cache)
    return KeptSize(len(sizes), sum(sizes.values()) + size_of(cache / "trees"))


def shrink(cache: Path) -> None:
    """Remove the commits that were not used for the longest time, until the others and all mirrors
    take no more than the limit. What is in use stays; another process may remove some at the same
    time. Raises UsageError."""
    limit, sizes = limit_bytes(), _sizes(cache)
    total = sum(sizes.values()) + size_of(cache / "trees")
    for folder in sorted(sizes, key=_last_used):
        if total <= limit:
            break
        if remove_unused(folder):
            total -= sizes[folder]
    remove_orphans(cache / "trees")


def _last_used(folder: Path) -> float:
    """When a commit was last used; 0 where it is gone by now."""
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime
    return 0.0


def _sizes(cache: Path) -> dict[Path, int]:
    """The commits that are whole, with their sizes. What is still unpacked has a name with a
    dot."""
    folders = (path for path in (cache / "commits").glob("*") if "." not in path.name)
    return {path: size_of(path) for path in folders if path.is_dir()}
