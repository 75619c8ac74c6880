"""A file that cannot be written takes nothing away from the verdict: it is printed first, then the
error, and the exit code changes only where it would be 0."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli import answer, finish
from kvproof.model.files import writing
from tests.sentences import two_sentences

BROKEN = ["--fault", "front_trim"]


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and no file can be made any more: the disk is full."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(writing, "_whole", full)


VIOLATED = [
    (["explore", *BROKEN], "VIOLATED - cluster pd-full"),
    (["sample", *BROKEN, "--examples", "20"], "VIOLATED - cluster pd-full"),
]


@pytest.mark.parametrize(("argv", "verdict"), VIOLATED, ids=lambda v: v[0])
def test_a_violation_without_its_trace_is_printed(
    run: Any, lost: Any, argv: list[str], verdict: str
) -> None:
    lost()
    code, out, err = run(*argv)
    assert code == 1
    assert verdict in out
    assert "Replay it" not in out
    assert " trace " not in out
    assert all(map(two_sentences, err.splitlines())), err
    assert "(No space left on device)" in err
    assert not list(Path().rglob("*.*"))


def test_outputs_are_tried_before_the_work(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, but nobody to a folder of the kernel.
    monkeypatch.setattr("kvproof.cli.explore.explore", lambda *_: pytest.fail("it explored"))
    for argv in (
        ["explore", "--traces", "/proc/none"],
        ["explore", "--traces", "/proc"],
        ["sample", "--traces", "/proc/none"],
        ["gate", "--summary", "/proc/s.md"],
        ["gate", "--sarif", "/proc/s.sarif"],
        ["gate", "--traces", "/proc/none"],
    ):
        assert "/proc" in refused(*argv)


def test_an_interruption_while_a_file_is_written_keeps_the_verdict(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(answer, "write_in", interrupted)
    code, out, err = run("explore", *BROKEN)
    assert code in (1, 130)
    assert "VIOLATED - cluster pd-full" in out
    assert err == f"{finish.NOT_FINISHED}\n"
    assert two_sentences(err)
