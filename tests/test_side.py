"""The process that drives one vLLM: it answers whatever a workload does to it, and it ends with
kvproof. What it does for a request is made up here: no vLLM is imported."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.gate.difference.protocol import Recorded, RecordRun, Seen
from kvproof.gate.difference.workload import Follow
from kvproof.gate.search.side import Ended, Side, started
from tests.processes import environment
from tests.two_machines import FULL, broken

REQUESTS = """
import os, signal, sys, time, types

def result(name, **more):
    from kvproof.gate.difference.protocol import Driven
    from kvproof.gate.difference.result import Result
    return Driven(Result(name, **{"steps": 1, **more}))

def look(probes):
    from kvproof.cli import gate_side
    from kvproof.gate.difference.protocol import Seen
    print("vLLM prints at import")
    gate_side.REQUEST_S = float(os.environ["REQUEST_S"])
    return Seen("", ())

def probes(places):
    return None

def answer(request, probes):
    if type(request).__name__ == "RecordRun":
        os._exit(3)
    name = request.workload.name
    if name == "prints":
        print("garbage", flush=True)
        sys.__stdout__.write('{"type":"Seen","failure":"","missing":[]}' + chr(10))
        sys.__stdout__.flush()
        os.write(1, b"more garbage")
    elif name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "exits":
        os._exit(7)
    elif name == "raises":
        raise RuntimeError
    elif name == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    elif name == "half":
        os.write(sys._getframe(1).f_locals["writes"], b'{"type":"Driven","res')
        os._exit(9)
    elif name == "large":
        return result(name, reached=tuple(map(str, range(300_000))))
    elif name == "counts":
        global COUNTED
        COUNTED += 1
        return result(name, steps=COUNTED)
    elif name == "seed":
        return result(name, reached=(os.environ["PYTHONHASHSEED"],))
    elif name == "ends the side":
        print("out of memory", file=sys.stderr, flush=True)
        os.kill(os.getppid(), signal.SIGKILL)
    return result(name)

COUNTED = 0
made = types.ModuleType("kvproof.gate.side.requests")
made.look, made.answer, made.probes = look, answer, probes
made.keep = lambda request, answer: answer
sys.modules[made.__name__] = made
"""
"""A `sitecustomize` that takes the place of what a side does for a request."""


def environment_of(folder: Path, request_s: float = 600) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(REQUESTS, encoding="utf-8")
    usual = environment()
    path = os.pathsep.join((str(folder), usual["PYTHONPATH"]))
    return usual | {"PYTHONPATH": path, "REQUEST_S": str(request_s)}


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with started(environment_of(tmp_path_factory.mktemp("side"))) as one:
        yield one


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Side]:
    """A side that waits for a request no longer than a second."""
    with started(environment_of(tmp_path, 1)) as one:
        yield one


def workload(name: str) -> Follow:
    return Follow(name, FULL)


def test_vllm_makes_its_first_hash_from_the_seed_of_both_sides(side: Side) -> None:
    side.look({})
    [answer] = side.drive([workload("seed")])
    assert answer.reached == ("0",)


def test_what_is_printed_is_not_taken_for_an_answer(side: Side) -> None:
    assert side.look({}) == Seen("", ())
    printed, after = side.drive([workload("prints"), workload("quiet")])
    assert (printed.name, printed.reason, printed.steps) == ("prints", "", 1)
    assert (after.name, after.reason) == ("quiet", "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dies", "it ends with -9"),
        ("exits", "it ends with 7"),
        ("raises", "it ends with 1"),
        ("half", "it ends with 9"),
    ],
)
def test_a_workload_that_ends_its_process_is_a_reason(side: Side, name: str, reason: str) -> None:
    lost, after = side.drive([workload(name), workload("quiet")])
    assert (lost.name, lost.reason, lost.steps) == (name, reason, 0)
    assert after.steps


def test_a_workload_that_hangs_is_a_reason_and_its_process_ends(impatient: Side) -> None:
    [lost] = impatient.drive([workload("hangs")])
    assert (lost.reason, lost.steps) == ("it takes more than 1 s", 0)
    assert children(impatient._process.pid) == []
    assert impatient.look({}) == Seen("", ())


def test_each_workload_begins_in_the_same_state(side: Side) -> None:
    assert [r.steps for r in side.drive([workload("counts")] * 2)] == [1, 1]


def test_an_answer_may_be_larger_than_a_pipe(side: Side) -> None:
    [large] = side.drive([workload("large")])
    assert len(large.reached) == 300_000


def test_a_trace_that_ends_its_process_is_not_recorded(side: Side) -> None:
    found = side.record(RecordRun(broken("pool_adds_up"), ".", "t"))
    assert found == Recorded(error="it ends with 3")


def test_no_process_of_a_workload_is_left(side: Side) -> None:
    side.drive([workload("dies"), workload("quiet")])
    assert children(side._process.pid) == []


def test_a_side_that_ends_says_the_last_line_of_it(tmp_path: Path) -> None:
    with started(environment_of(tmp_path)) as side:
        for _ in range(2):  # also where it has ended already
            with pytest.raises(Ended, match="out of memory"):
                side.drive([workload("ends the side")])
    assert side._process.returncode == -signal.SIGKILL


def test_a_side_that_cannot_start_says_why(tmp_path: Path) -> None:
    env = environment_of(tmp_path)
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(5)\n", encoding="utf-8")
    with started(env) as side, pytest.raises(Ended, match="the process ended with 5"):
        side.look({})


def test_it_ends_with_its_block(tmp_path: Path) -> None:
    with started(environment_of(tmp_path)) as side:
        side.look({})
        pid = side._process.pid
        assert is_there(pid)
    assert not is_there(pid)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [int(each) for each in found if is_there(int(each))]


def is_there(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def gone(pids: list[int]) -> bool:
    """Whether all of these processes end in time."""
    end = time.monotonic() + 600
    while any(map(is_there, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_there, pids))


def until(wanted: int, pid: int) -> list[int]:
    """The children of a process, as soon as there are this many."""
    end = time.monotonic() + 600
    while len(found := children(pid)) < wanted:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


DRIVES = """
import sys
from kvproof.gate.search.side import started
from kvproof.gate.difference.workload import Follow
from tests.two_machines import FULL
import os
with started(dict(os.environ)) as side:
    side.look({})
    side.drive([Follow("hangs", FULL)])
"""


def test_no_workload_outlives_a_killed_kvproof(tmp_path: Path) -> None:
    env = environment_of(tmp_path)
    parent = subprocess.Popen([sys.executable, "-c", DRIVES], cwd=tmp_path, env=env)
    [side] = until(1, parent.pid)
    [fork] = until(1, side)
    parent.kill()
    parent.wait(timeout=600)
    assert gone([side, fork])
