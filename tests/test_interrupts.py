"""Interruptions: what was done is kept and named, the exit code is that of the signal, and nothing
is half-written. `python -m tests.kills` makes many more kills than these."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from kvproof.model import interruption
from tests import kills

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "number", "after_s"),
    [
        ("explore", INT, 0.0),  # while the program is imported
        ("prove", TERM, 0.1),
        ("sample", INT, 0.2),
        ("explore", TERM, 2.0),
        ("explore", KILL, 2.5),
        ("sample", TERM, 2.5),
        ("prove", INT, 2.5),
        ("gate", TERM, 3.0),
        ("releases", INT, 2.0),
        ("trace", INT, 3.0),
        ("trace", KILL, 3.0),
    ],
)
def test_a_kill(tmp_path: Path, name: str, number: signal.Signals, after_s: float) -> None:
    kind = kills.BY_NAME[name]
    kills.check(tmp_path, kind, number, kills.killed(tmp_path, kind, number, after_s))


def test_an_interrupted_search_continues_to_the_same_result(tmp_path: Path) -> None:
    kind = kills.BY_NAME["explore"]
    (tmp_path / "whole").mkdir()
    whole = kills.resumed(tmp_path / "whole", kind)
    for number in (INT, TERM):  # the second interrupts what continues
        more = ["--resume"] if (tmp_path / kills.CHECKPOINT).exists() else []
        again = kind._replace(command=(*kind.command, *more))
        assert kills.killed(tmp_path, again, number, 1.5).code in (128 + number, kind.code)
    kills.same(kills.resumed(tmp_path, kind), whole)


def test_a_search_that_was_cut_is_cut_at_the_same_state_when_it_continues(as_json: Any) -> None:
    command = ("explore", "--config", "pd-full", "--states-max", "10", "--checkpoint", "kept")
    _, cut = as_json(*command)
    _, again = as_json(*command, "--resume")
    kills.same(again, cut)
    assert cut["reason"] == again["reason"] == "the search was cut at 10 states"


def python(code: str, *sent: tuple[float, signal.Signals]) -> "subprocess.CompletedProcess[str]":
    """Run code with the handlers installed, and send it signals at these times (seconds)."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{PREPARED}{textwrap.dedent(code)}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    begin = time.monotonic()
    for at_s, number in sent:
        time.sleep(max(0.0, begin + at_s - time.monotonic()))
        process.send_signal(number)
    out, err = process.communicate(timeout=20)
    return subprocess.CompletedProcess("", process.returncode, out, err)


PREPARED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from kvproof.model import interruption
interruption.install()
print("ready", flush=True)

def wait():
    end = time.monotonic() + 15
    while time.monotonic() < end:
        sum(range(100))
"""


def test_code_that_swallows_the_interruption_is_interrupted_again() -> None:
    done = python(
        """
        with interruption.stoppable() as stopped:
            try:
                wait()
            except BaseException:  # as the bare `except:` in vLLM
                pass
            wait()
        print("kept", bool(stopped))
        sys.exit(interruption.exit_code(0))
        """,
        (0.1, INT),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "kept True\n", "")


def test_code_that_swallows_every_interruption_is_ended() -> None:
    done = python(
        """
        while True:
            try:
                wait()
            except BaseException:
                pass
        """,
        (0.1, TERM),
    )
    assert done.returncode == 143
    assert done.stderr == "\nInterrupted, and the work did not stop by itself: ended.\n"


def test_a_second_signal_ends_the_process_at_once() -> None:
    begin = time.monotonic()
    done = python("with interruption.held(): wait()", (0.1, INT), (0.8, INT))
    assert (done.returncode, done.stderr) == (130, "\nInterrupted again: ended at once.\n")
    assert time.monotonic() - begin < 10


def test_one_interruption_that_arrives_twice_is_one() -> None:
    """`timeout` and `make` send the signal to the process and to its group."""
    done = python(
        """
        with interruption.stoppable():
            wait()
        time.sleep(0.5)
        print("kept")
        """,
        (0.1, INT),
        (0.15, INT),
    )
    assert (done.stdout, done.stderr) == ("kept\n", "")


def test_held_code_is_not_cut_and_the_code_after_it_is() -> None:
    done = python(
        """
        with interruption.stoppable() as stopped:
            with interruption.held() as requested:
                while not requested():
                    pass
                time.sleep(0.5)
                print("whole", flush=True)
            wait()
        print("stopped", bool(stopped))
        """,
        (0.1, INT),
    )
    assert (done.stdout, done.stderr) == ("whole\nstopped True\n", "")


def test_z3_is_interrupted_within_a_second() -> None:
    """A sum of three cubes: Z3 would search for the whole minute."""
    begin = time.monotonic()
    done = python(
        """
        import z3
        from kvproof.strategies.symbolic.query import checked
        context = z3.Context()
        x, y, z = z3.Ints("x y z", context)
        solver = z3.SimpleSolver(ctx=context)
        solver.add(x * x * x + y * y * y + z * z * z == 42, x > 10**6, y > 10**3)
        solver.set("timeout", 60_000)
        with interruption.stoppable() as stopped:
            print(checked(solver))
        print("stopped", bool(stopped))
        """,
        (1.5, INT),
    )
    assert (done.stdout, done.stderr) == ("stopped True\n", "")
    assert time.monotonic() - begin < 10


def test_a_program_that_kvproof_started_ends_with_it(tmp_path: Path) -> None:
    done = python(
        f"""
        from kvproof.live import children
        program = "import time, pathlib; pathlib.Path({str(tmp_path / "pid")!r}).write_text(" \\
            "str(__import__('os').getpid())); time.sleep(60)"
        with interruption.stoppable() as stopped:
            children.run([sys.executable, "-c", program])
        print("stopped", bool(stopped))
        """,
        (1.5, TERM),
    )
    assert (done.stdout, done.stderr) == ("stopped True\n", "")
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_an_interruption_of_one_command_is_not_one_of_the_next(run: Any) -> None:
    with interruption.handled():
        with interruption.stoppable() as stopped:
            signal.raise_signal(INT)
        assert stopped
        assert interruption.exit_code(0) == 130
    assert interruption.exit_code(0) == 0
    assert run("explore", "--config", "full")[0] == 0


@pytest.mark.parametrize("module", ["live_summary", "survey_release"])
def test_the_other_programs_start_as_safely(module: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", f"kvproof.cli.{module}", "r.xml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:  # the handlers are set before this module is imported
        if line.rstrip().endswith("kvproof.cli.ending"):
            process.send_signal(INT)
            break
    out, err = process.communicate(timeout=30)
    assert process.returncode in (130, 2, 3)
    assert "Traceback" not in out + err
