"""Interruptions: what was done is kept, the exit code is that of the signal, nothing is half."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvproof.model import interruption
from tests import made_trees, signals
from tests.cover import others_nightly
from tests.processes import python

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL

END_S = 900.0
"""A process that has not ended by then, in seconds, hangs: an idle machine needs less than one."""

UNWANTED = ("Traceback", "Exception ignored", "KeyboardInterrupt")

MADE_BEFORE = ("site", "base", "head")
"""Folders that are there before the kill."""

MIRROR = re.compile(r"cache/trees/[0-9a-f]{16}/")
"""A whole mirror of a tree, which stays in the cache. A part of one has another name."""

FAKE_PIP = """
import os, sys, time
if "install" in sys.argv:
    folder = sys.argv[sys.argv.index("--target") + 1]
    os.makedirs(folder)
    print("half", file=open(os.path.join(folder, "half"), "w"), flush=True)
    parent = os.getppid()
    os.kill(parent, int(os.environ["KILLED_BY"]))
    while os.getppid() == parent:
        time.sleep(0.2)
"""
"""A pip that kills who started it in the middle of an installation, and never ends."""


TRACE = str(next(Path(__file__).parent.parent.glob("findings/*/trace.jsonl")))


AT_A_CALL = """
import os, sys
file, function, calls = os.environ.pop("KILLED_AT").rsplit(":", 2)
left = int(calls)
def look(frame, event, _):
    global left
    code = frame.f_code
    if event == "call" and code.co_name == function and code.co_filename.endswith(file):
        left -= 1
        if not left:
            sys.setprofile(None)
            os.kill(os.getpid(), int(os.environ["KILLED_BY"]))
sys.setprofile(look)
"""
"""The program sends itself a signal at a call of a function: on each machine at the same one."""


class Moment(NamedTuple):
    """A command, and the call at which it is killed: the end of a file's name, a function of it,
    and which of its calls."""

    command: tuple[str, ...]
    file: str
    function: str
    calls: int = 1


EXPLORE = ("explore", "--config", "pd-default", "--states-max", "3000")
SAMPLE = ("sample", "--examples", "100000")
RELEASES = ("replay", TRACE, "--releases", "0.18.0", "--cache", "cache")

MOMENTS = {
    "explore, searches": Moment(EXPLORE, "explorer/packed.py", "expand", 200),
    "explore, imports": Moment(EXPLORE, "cli/main.py", "<module>"),
    "explore, begins": Moment(EXPLORE, "explorer/packed.py", "__init__"),
    "sample, searches": Moment(SAMPLE, "strategies/run.py", "take", 300),
    "prove, begins": Moment(("prove",), "proofs/prove.py", "everything"),
    "prove, asks Z3": Moment(("prove",), "proofs/solve.py", "checked", 5),
    "gate, waits for its sides": Moment(made_trees.DIFFERENT, "search/comparison.py", "look"),
    "releases, installs": Moment(RELEASES, "pip", "which kills"),
}


class Killed(NamedTuple):
    """What a killed process left: its exit code (negative for SIGKILL), and its output."""

    code: int
    out: str
    err: str


def environment(folder: Path, killed_at: str, number: int) -> dict[str, str]:
    """The environment of the program, with the pip that kills before all others."""
    site = folder / "site"
    (site / "pip").mkdir(parents=True)
    (site / "pip" / "__init__.py").touch()
    (site / "pip" / "__main__.py").write_text(FAKE_PIP, encoding="utf-8")
    (site / "at_a_call.py").write_text(AT_A_CALL, encoding="utf-8")
    found = [str(site), *(path for path in sys.path if path)]
    named = {"KILLED_AT": killed_at, "KILLED_BY": str(number)}
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)} | named


PROGRAM = "import at_a_call; from kvproof.cli.start import main; main()"


def killed(folder: Path, moment: Moment, number: signal.Signals) -> Killed:
    """Run a command with --json until its moment. It has a session of its own, so that the signal
    reaches nothing else."""
    made_trees.base_and_head(folder, begins="import time\ntime.sleep(600)\n")
    at = f"{moment.file}:{moment.function}:{moment.calls}"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *moment.command, "--json"],
        cwd=folder,
        env=environment(folder, at, int(number)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=signals.as_in_a_terminal,
    ) as process:
        try:
            out, err = process.communicate(timeout=END_S)
        finally:
            process.kill()
    return Killed(process.returncode, out, err)


def check(folder: Path, number: signal.Signals, end: Killed) -> None:
    """What holds after each kill: the exit code is that of the signal; no traceback; one whole
    object or nothing on standard output; no half-written file, and no process."""
    left = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    left = [path for path in left if path.parts[0] not in (*MADE_BEFORE, ".hypothesis")]
    left = [path for path in left if not MIRROR.match(str(path))]
    context = f"{number.name} {end._replace(out=end.out[-300:])} {left}"
    assert end.code == (-number if number is signal.SIGKILL else 128 + number), context
    if end.out:
        record = json.loads(end.out)
        assert record["exit_code"] == end.code, context
        assert record["verdict"] == "UNKNOWN", context
        assert "interrupted" in json.dumps(record), context
    if number is not signal.SIGKILL:
        assert not any(word in end.err for word in UNWANTED), context
        assert not left, context
        assert not _processes(folder), context
    assert not (folder / "cache" / "vllm" / "0.18.0").exists(), context


def _processes(folder: Path) -> list[str]:
    """The command lines of processes that work in a folder, or name a file in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
            words.append(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if any(word.startswith(str(folder)) for word in words):
            found.append(" ".join(words))
    return found


EACH_MOMENT_ONCE = [*zip(MOMENTS, itertools.cycle((INT, TERM, KILL)), strict=False)]


@pytest.mark.parametrize(
    "kill",
    others_nightly(itertools.product(MOMENTS, (INT, TERM, KILL)), EACH_MOMENT_ONCE),
    ids=lambda kill: f"{kill[0]}, {kill[1].name}",
)
def test_a_program_that_is_killed_loses_nothing(
    tmp_path: Path, kill: tuple[str, signal.Signals]
) -> None:
    moment, number = kill
    check(tmp_path, number, killed(tmp_path, MOMENTS[moment], number))


def sent(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code with the handlers installed. It sends itself signals, each where something is so:
    none comes early or late on a slow machine."""
    return python("-c", f"{PREPARED}{textwrap.dedent(code)}")


PREPARED = """
import os, sys, threading, time
from signal import SIGINT, SIGTERM, raise_signal
from kvproof.model import interruption
from tests import signals
signals.as_in_a_terminal()
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


ENDED = (130, "", "\nInterrupted again: ended at once.\n")


@pytest.mark.parametrize(("again_s", "end"), [(-1, ENDED), (1000, (0, "kept\n", ""))])
def test_a_second_signal_ends_the_process_at_once_and_one_that_arrives_twice_does_not(
    again_s: int, end: tuple[int, str, str]
) -> None:
    """`timeout` and `make` send the signal to the process and to its group."""
    done = sent(
        f"""
        interruption.AGAIN_S = {again_s}
        with interruption.stoppable():
            raise_signal(SIGINT)
        raise_signal(SIGINT)
        print("kept")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == end


def test_z3_is_interrupted() -> None:
    """A sum of three cubes: Z3 would search without end."""
    done = sent(
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
    done = sent("\n".join(map(textwrap.dedent, (begin, when, end))))
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
