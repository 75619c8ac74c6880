"""Standard output that is closed or full: exit code 4 and two sentences. A reader that has gone, as
`head` has: exit code 141 and no word. Standard error may be all this; then only its messages are
lost."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import (
    QUICK,
    TRACE,
    no_traceback,
    redirected,
    refused,
    started,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")

NOT_PRINTED = 4
"""The exit code where standard output is closed or full."""

READER_GONE = 128 + signal.SIGPIPE


@pytest.mark.parametrize(
    ("argv", "how", "why"),
    [
        *((argv, ">/dev/full", "No space left on device") for argv in QUICK),
        *((argv, ">&-", "it is closed") for argv in (*QUICK[::2], ("--help",))),
        (("explain", "faults"), "1</dev/null", "it is open for reading only"),
    ],
)
def test_a_standard_output_that_cannot_be_written(
    argv: tuple[str, ...], how: str, why: str, tmp_path: Path
) -> None:
    said = refused(redirected(argv, tmp_path, how), NOT_PRINTED)
    assert said.startswith(f"Standard output cannot be written ({why}). Use ")


def test_a_closed_output_is_noticed_before_the_work(tmp_path: Path) -> None:
    argv = ["prove", "--obligation", "trim_equal_counts", "--table", "t.md"]
    refused(redirected(argv, tmp_path, ">&-"), NOT_PRINTED)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("argv", QUICK[1::2], ids=" ".join)
def test_a_pipe_whose_reader_is_gone(argv: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = started(argv, tmp_path, stdout=writer)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (READER_GONE, b"")


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("explore", "--config", "oversized"), 0),
        (("explore", "--fault", "front_trim", "--json"), 1),
        (("sample", "--config", "oversized", "--examples", "2", "--steps", "4"), 0),
        (("explore", "--config", "nosuch"), 2),
        (("nosuch",), 2),
        (("explain", "faults"), 0),
        (("report", str(TRACE)), 0),
    ],
)
def test_a_standard_error_that_is_closed_or_full(
    argv: tuple[str, ...], code: int, how: str, tmp_path: Path
) -> None:
    ran = redirected(argv, tmp_path, how)
    assert ran.returncode == code
    assert bool(ran.stdout) == (code != 2)
    no_traceback(ran)
