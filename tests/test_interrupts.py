"""Interruptions: what was done is kept, the exit code is that of the signal, nothing is half."""

import itertools
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kvproof.model import interruption
from tests import kills, signals
from tests.cover import others_nightly

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


EACH_MOMENT_ONCE = [*zip(kills.MOMENTS, itertools.cycle((INT, TERM, KILL)), strict=False)]


@pytest.mark.parametrize(
    "kill",
    others_nightly(itertools.product(kills.MOMENTS, (INT, TERM, KILL)), EACH_MOMENT_ONCE),
    ids=lambda kill: f"{kill[0]}, {kill[1].name}",
)
def test_a_program_that_is_killed_loses_nothing(
    tmp_path: Path, kill: tuple[str, signal.Signals]
) -> None:
    moment, number = kill
    kills.check(tmp_path, number, kills.killed(tmp_path, kills.MOMENTS[moment], number))


def python(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code with the handlers installed. It sends itself signals, each where something is so:
    none comes early or late on a slow machine."""
    return subprocess.run(
        [sys.executable, "-c", f"{PREPARED}{textwrap.dedent(code)}"],
        capture_output=True,
        text=True,
        timeout=kills.END_S,
        preexec_fn=signals.as_in_a_terminal,
    )


PREPARED = """
import os, sys, threading, time
from signal import SIGINT, SIGTERM, raise_signal
from kvproof.model import interruption
handled = interruption.handled()
handled.__enter__()

def wait(so=lambda: False):
    while not so():
        sum(range(100))

def send(number, when):
    def run():
        wait(when)
        os.kill(os.getpid(), number)
    threading.Thread(target=run, daemon=True).start()

def seen():
    return interruption.requested()
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    done = python(
        """
        interruption.AGAIN_S = -1
        with interruption.held():
            raise_signal(SIGINT)
            raise_signal(SIGINT)
            print("not ended")
        """
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nInterrupted again: ended at once.\n"


def test_one_interruption_that_arrives_twice_is_one() -> None:
    """`timeout` and `make` send the signal to the process and to its group."""
    done = python(
        """
        interruption.AGAIN_S = 1000
        with interruption.stoppable():
            raise_signal(SIGINT)
        raise_signal(SIGINT)
        print("kept")
        """
    )
    assert (done.stdout, done.stderr) == ("kept\n", "")


def test_an_interruption_that_code_swallows_is_raised_again() -> None:
    """As the bare `except:` in vLLM does. Work that shows its progress asks."""
    done = python(
        """
        with interruption.stoppable() as stopped:
            try:
                raise_signal(SIGINT)
            except BaseException:
                pass
            interruption.check()
            print("not stopped")
        print("kept", bool(stopped))
        sys.exit(interruption.exit_code(0))
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "kept True\n", "")


def test_z3_is_interrupted() -> None:
    """A sum of three cubes: Z3 would search without end."""
    done = python(
        """
        import z3
        from kvproof.proofs.solve import checked
        context = z3.Context()
        x, y, z = z3.Ints("x y z", context)
        solver = z3.SimpleSolver(ctx=context)
        solver.add(x * x * x + y * y * y + z * z * z == 42, x > 10**6, y > 10**3)
        send(SIGINT, lambda: threading.active_count() > 2)
        with interruption.stoppable() as stopped:
            print(checked(solver))
        print("stopped", bool(stopped))
        """
    )
    assert (done.stdout, done.stderr) == ("stopped True\n", "")


AT_ONCE = """
start = children.subprocess.Popen
def started(*arguments, **options):
    process = start(*arguments, **options)
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    raise_signal(SIGTERM)  # before `run` knows the program
    return process
children.subprocess.Popen = started
"""
LATER = "send(SIGTERM, lambda: path.exists() and path.read_text())"


@pytest.mark.parametrize("when", [AT_ONCE, LATER], ids=["at once", "later"])
def test_a_program_that_kvproof_started_ends_with_it(when: str, tmp_path: Path) -> None:
    program = f"import os, time, pathlib; pathlib.Path({str(tmp_path / 'pid')!r}).write_text("
    program += "str(os.getpid())); time.sleep(1000)"
    begin = f"""
        import pathlib
        from kvproof.live import children
        path = pathlib.Path({str(tmp_path / "pid")!r})
    """
    end = f"""
        with interruption.stoppable() as stopped:
            children.run([sys.executable, "-c", {program!r}])
        print("stopped", bool(stopped))
    """
    done = python("\n".join(map(textwrap.dedent, (begin, when, end))))
    assert (done.stdout, done.stderr) == ("stopped True\n", "")
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_of_one_command_is_not_one_of_the_next(run: Any) -> None:
    with interruption.handled():
        with interruption.stoppable() as stopped:
            signal.raise_signal(INT)
        assert stopped
        assert interruption.exit_code(0) == 130
    assert interruption.exit_code(0) == 0
    assert run("explore", "--config", "full")[0] == 0
