"""Child processes of a reproducer: its statements are observed, and it is run by pytest."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from kvproof.live import children
from kvproof.live.reproducer.choosing import Observation

Environment = Mapping[str, str]
Outcome = Literal["fails", "passes", "cannot run", "not run"]
Result = TypeVar("Result")

TIMEOUT_S = 300.0
"""Seconds after which a child process is ended: vLLM is imported in 10 to 30."""

FAILED, PASSED = 1, 0
"""The exit codes of pytest for tests that ran."""


class NotObserved(Exception):
    """The statements could not be observed. The message says why in one line."""


def on_each(trees: Sequence[Environment], run: Callable[[Environment], Result]) -> list[Result]:
    """The results of one run on each tree, side by side."""
    with ThreadPoolExecutor(max_workers=len(trees)) as pool:
        return list(pool.map(run, trees))


def observed(file: Path, tree: Environment) -> list[Observation]:
    """What a file with an `observe` function sees after each statement. The last entry has the
    exception that ended the run, if one did. Raises NotObserved."""
    folder = file.parent
    try:
        ran = children.run(
            [sys.executable, "-P", str(file), str(folder)], env=_offline(tree), timeout_s=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise NotObserved(f"the statements ran for more than {TIMEOUT_S:g} s") from error
    line = ran.stdout.strip().splitlines()[-1:] or [""]
    if ran.returncode or not line[0].startswith('{"seen"'):
        raise NotObserved(f"the statements do not run ({_last_line(ran.stderr)})")
    found = json.loads(line[0])
    seen = [Observation(None, facts) for facts in found["seen"]]
    return seen + ([Observation(found["raised"], ())] if found["raised"] else [])


def tested(file: Path, tree: Environment) -> tuple[Outcome, str]:
    """The outcome of a test file with pytest, and the last lines of what it printed."""
    command = [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-q"]
    command += ["--rootdir", str(file.parent), "-c", "/dev/null", str(file)]
    try:
        ran = children.run(command, env=_offline(tree), timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "cannot run", f"it ran for more than {TIMEOUT_S:g} s"
    collected = re.search(r"\d+ error", ran.stdout.strip().splitlines()[-1]) if ran.stdout else None
    if ran.returncode == PASSED:
        return "passes", ""
    if ran.returncode == FAILED and not collected:
        return "fails", ran.stdout
    return "cannot run", _last_line(ran.stdout + ran.stderr)


def _offline(tree: Environment) -> dict[str, str]:
    return {
        **tree,
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }


def _last_line(printed: str) -> str:
    return (printed.strip() or "it says nothing").splitlines()[-1][:200]
