"""The sanitizer is not silent in vLLM's default process mode, however the engine core ends."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.ordinary import pool
from tests.engine.planting import environment
from tests.engine.process import OPTIONS, Process

pytestmark = [pytest.mark.live, pytest.mark.engine]

LEAK = "aborted_keeps_its_blocks"
ENGINE = ["engine", "full", OPTIONS | pool()]
WORK = ["call", "tests.engine.ordinary:work", 0, 20]
PLANTING = "tests.engine.planting"
LIMIT_S = 900.0
"""A loaded machine may take minutes to start an engine core."""


def said(process: Process) -> list[str]:
    """What the sanitizer printed, no line twice."""
    lines = re.findall(r"kvproof: (.*)", process.log)
    assert len(set(lines)) == len(lines), lines
    return lines


def verdict(lines: list[str]) -> str:
    """The one line that says what was found in all."""
    [found] = [line for line in lines if re.search(r" in [\d,]+ steps? of 1 engine\b", line)]
    return found


def records(lines: list[str]) -> Iterator[Path]:
    """The records that findings name when they are printed."""
    for line in lines:
        if line.startswith("VIOLATED ") and "; record: " in line:
            yield Path(line.partition("; record: ")[2])


@pytest.mark.nightly
def test_a_violation_that_ends_the_core_is_printed_and_told(tmp_path: Path) -> None:
    plugin = environment(tmp_path / "plugin")
    with Process(
        tmp_path, mode="raise", several=True, environment=plugin, limit_s=LIMIT_S
    ) as process:
        answer = process.take(["call", f"{PLANTING}:choose", LEAK], ENGINE, WORK)
        assert answer.error is not None
    lines = said(process)
    assert verdict(lines).startswith("1 violation in ")
    assert [path.exists() for path in records(lines)] == [True]


@pytest.mark.nightly
@pytest.mark.parametrize("number", [0, signal.SIGTERM])
def test_an_end_that_leaves_time_loses_nothing(number: int, tmp_path: Path) -> None:
    end = [["call", f"{PLANTING}:end", int(number)]] if number else []
    with Process(tmp_path, mode="raise", several=True, limit_s=LIMIT_S) as process:
        process.served(ENGINE, WORK, *end)
    assert verdict(said(process)).startswith("no violation in ")
    assert process.complaints == []
    assert "was killed" not in process.log
