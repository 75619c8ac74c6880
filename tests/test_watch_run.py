"""The switches of the sanitizer, the processes of a run, and what the parent tells of them."""

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from kvproof.model.records.record import read
from tests.processes import python

# Switches


RUN = """
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.v1.core.block_pool import BlockPool
if {mistake}:
    BlockPool.touch = lambda self, blocks: None
from kvproof.live.machine import LiveMachine
from kvproof.model.config import Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.presets import CLUSTERS
jobs = Job("r0", "abcdefg", 1), Job("r1", "abcdefg", 1)
def test_answers():
    machine = LiveMachine(CLUSTERS["full"].carrying(*jobs))
    name = machine.cluster.engines[0].name
    for job in jobs:
        machine.take(Submit(name, job.name))
        while any(request.id == job.name for request in machine.state.engines[0].requests):
            machine.take(Schedule(name))
            if machine.state.engines[0].step:
                machine.take(Complete(name))
"""
SEARCH = ("hypothesis", "z3", "networkx")


def run(
    code: str, mode: str | None, *options: str, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    return python(*options, "-c", code, KVPROOF=mode, KVPROOF_DIR=str(folder))


def test_off_it_imports_nothing() -> None:
    code = "import sys; before = set(sys.modules); import kvproof.watch.switch as switch;"
    ran = run(f"{code} switch.plugin(); print(*sorted(set(sys.modules) - before))", None)
    assert ran.returncode == 0, ran.stderr
    ours = {"kvproof", "kvproof.live", "kvproof.watch", "kvproof.watch.switch"}
    assert {name for name in ran.stdout.split() if name.startswith("kvproof")} <= ours
    assert not {name.split(".")[0] for name in ran.stdout.split()} & {"vllm", "torch", *SEARCH}


def test_an_unknown_mode_is_told_and_nothing_is_watched() -> None:
    ran = run("import kvproof.watch.switch as switch; switch.plugin()", "loud")
    assert ran.returncode == 0
    said = "kvproof: KVPROOF=loud is no mode of kvproof. Use one of record, warn, raise."
    assert ran.stderr.strip() == said


KEEPS = """
import logging, os
import vllm.v1.core.sched.scheduler, vllm.v1.worker.gpu_model_runner
log = logging.getLogger("vllm")
def kept(): return {k: v for k, v in os.environ.items() if k != "KVPROOF_RUN"}
def seen(): return kept(), log.level, log.propagate, list(log.handlers), log.filters
before = seen()
from kvproof.watch import switch
switch.plugin()
assert switch._watching is not None
assert seen() == before, [pair for pair in zip(before, seen()) if pair[0] != pair[1]]
"""


@pytest.mark.nightly
@pytest.mark.live
def test_a_server_keeps_its_environment_and_its_log() -> None:
    ran = run(KEEPS, "record")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.nightly
@pytest.mark.live
@pytest.mark.parametrize("mode", ["record", "warn", "raise"])
def test_a_mistake_is_told_as_the_mode_says(mode: str, tmp_path: Path) -> None:
    ran = run(RUN.format(mistake=True) + "test_answers()", mode, folder=tmp_path / "records")
    assert (ran.returncode != 0) == (mode == "raise"), ran.stderr
    lines = ran.stderr.splitlines()
    # One event breaks several checks. In raise mode the first that is asked ends it.
    check = "no_block_free_and_held" if mode == "raise" else "references_are_exact"
    found = f"kvproof: VIOLATED {check} (wrong tokens): "
    told = [at for at, line in enumerate(lines) if line.startswith(found)]
    assert len(told) == {"record": 1, "warn": 3, "raise": 1}[mode], ran.stderr
    for at in told:
        assert f"; record: {tmp_path / 'records'}/" in lines[at]
        with_events = lines[at + 1] == "    add_request: r0 arrives with 7 tokens"
        assert with_events == (mode != "record"), ran.stderr
    assert mode != "record" or not re.search("^    [a-z_]+: ", ran.stderr, re.MULTILINE)
    assert f"kvproof: VIOLATED: {check}" in ran.stderr, ran.stderr
    for path in (tmp_path / "records").iterdir():
        assert f"kvproof: record: {path}\n" in ran.stderr
        assert read(path).findings


@pytest.mark.live
@pytest.mark.parametrize(
    ("mistake", "option"),
    [
        (True, True),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in [(True, False), (False, True)]
        ),
    ],
)
def test_pytest_fails_the_test_that_counts_wrongly(
    tmp_path: Path, *, mistake: bool, option: bool
) -> None:
    (tmp_path / "test_engine.py").write_text(RUN.format(mistake=mistake), encoding="utf-8")
    chosen = ["--kvproof"] if option else []
    options = ("-q", *chosen, "-p", "no:cacheprovider")
    ran = python("-m", "pytest", *options, tmp_path, cwd=tmp_path)
    red = mistake and option
    assert ran.returncode == int(red), ran.stdout + ran.stderr
    assert ("VIOLATED no_block_free_and_held" in ran.stdout) == red
    assert ("judged: " in ran.stdout) == option


@pytest.mark.live
@pytest.mark.nightly
def test_the_summaries_of_several_processes_are_one(tmp_path: Path) -> None:
    """With pytest-xdist: each worker gives its numbers to the process that started it."""
    pytest.importorskip("xdist")
    code = RUN.format(mistake=False) + "test_again = test_answers\n"
    (tmp_path / "test_engine.py").write_text(code, encoding="utf-8")
    options = ["-q", "-n", "2", "--kvproof", "-p", "no:cacheprovider"]
    ran = python("-m", "pytest", *options, tmp_path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    [judged] = [line for line in lines if line.startswith("judged: ")]
    assert "pool_adds_up" in judged
    [engines] = re.findall(r"no violation in \d+ steps of (\d+) engines", ran.stdout)
    assert int(engines) > 6, ran.stdout  # as many are built where one process runs both tests
    assert "UNKNOWN" not in ran.stdout


# Processes


BEGIN = """
import multiprocessing, os, signal, sys
from pathlib import Path
from kvproof.watch.run import WatchedRun
from kvproof.watch.summary import Summary

def numbers(steps):
    summary = Summary()
    summary.watched.update(engines=1, steps=steps)
    return summary.plain()

def core(end):
    run = WatchedRun()
    assert not run.parent and not run.broken
    run.save(numbers(3))
    run.step(5)
    if end == "idle":
        run.save(numbers(5))
    if end in ("idle", "killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    run.save(numbers(5), ended=True)
    assert not run.prints_summary

if __name__ == "__main__":
"""


def program(body: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program with runs of its own, from a file: a spawned process reads it."""
    path = folder / "program.py"
    path.write_text(BEGIN + textwrap.indent(body, "    "), encoding="utf-8")
    return python(path, KVPROOF=None, KVPROOF_RUN=None, KVPROOF_DIR=str(folder / "records"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_parent_knows_what_was_saved_and_what_is_lost(method: str, tmp_path: Path) -> None:
    body = f"""
run = WatchedRun()
for end in "killed", "idle", "itself":
    process = multiprocessing.get_context("{method}").Process(target=core, args=(end,), name=end)
    process.start(); process.join()
for part in sorted(run.others(), key=lambda part: part.saved.name):
    print(part.saved.name, part.saved.pid == process.pid, part.numbers["watched"]["steps"])
    print(part.lost.replace(str(part.saved.pid), "N"))
run.mark_reported()
print(os.listdir(Path(os.environ["KVPROOF_DIR"]).parent))
"""
    ran = program(body, tmp_path)
    assert ran.returncode == 0, ran.stderr
    lost = "its last saved count is of step 3, and what was counted in 2 more is lost"
    assert ran.stdout.splitlines() == [
        *("idle False 5", ""),
        *("itself True 5", ""),
        *("killed False 5", f"killed pid N was killed, or died; {lost}"),
        "['program.py']",
    ]


def test_where_the_parent_was_killed_each_tells_by_itself(tmp_path: Path) -> None:
    body = """
ready, go = os.pipe(), os.pipe()
if not os.fork():
    run = WatchedRun()
    if not os.fork():
        mine = WatchedRun(forked=True)
        mine.save(numbers(1))
        assert not mine.parent and not mine.prints_summary
        os.write(ready[1], b".")
        os.read(go[0], 1)
        print("tells", mine.prints_summary, flush=True)
        os._exit(0)
    os.read(ready[0], 1)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os.write(go[1], b".")
"""
    ran = program(body, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "tells True\n"), ran.stderr


def test_a_folder_that_cannot_be_made_is_told_and_each_tells_by_itself(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("a file", encoding="utf-8")
    body = """
run = WatchedRun()
print(run.broken)
run.save(numbers(1))
print(run.prints_summary, WatchedRun(forked=True).prints_summary, repr(os.environ["KVPROOF_RUN"]))
"""
    ran = program(body, tmp_path)
    assert ran.returncode == 0, ran.stderr
    why, tell = ran.stdout.splitlines()
    assert re.fullmatch(r"The folder .* cannot be made .*\. Use a folder that .*", why)
    assert tell == "True True ''"


CORES = """
import multiprocessing, os, signal
from kvproof.watch import run
run.SAVE_S = 1e9  # however slow the machine is
def core(end):
    if end == "worker":  # as one that outlives the engine core, and its parent
        from kvproof.watch import switch
        switch._watching._is_forked()
        return
    test_answers()
    if end == "killed":
        test_answers()  # the kinds of its findings are known, so nothing is saved
        os.kill(os.getpid(), signal.SIGKILL)
for end in {ends}:
    process = multiprocessing.get_context("fork").Process(target=core, args=(end,), name=end)
    process.start()
    process.join()
"""


@pytest.mark.live
@pytest.mark.parametrize("mistake", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_the_parent_prints_the_verdict_once_also_of_a_killed_core(
    tmp_path: Path, *, mistake: bool
) -> None:
    code = RUN.format(mistake=mistake) + CORES.format(ends=("clean", "worker", "killed"))
    ran = run(code, "record", folder=tmp_path / "records")
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.startswith("kvproof: ")]
    assert len(set(lines)) == len(lines)
    begun = [line for line in lines if line.startswith("kvproof: watching engine ")]
    pids = {
        re.sub(r".* of (\w+), pid (\d+), record\. Not judged on it: .*", r"\1 \2", line)
        for line in begun
    }
    names = {line.split()[0]: line.split()[1] for line in pids}
    assert {"clean", "killed"} <= set(names), begun
    [at] = [n for n, line in enumerate(lines) if re.search(r" in \d+ steps of \d+ engines", line)]
    assert lines[at].startswith("kvproof: no violation") == (not mistake), lines[at]
    assert lines[at].endswith("; the numbers of 1 process are not whole")
    assert f"killed pid {names['killed']} was killed, or died; its last saved " in lines[at + 1]
    found = [line for line in lines[:at] if " VIOLATED references_are_exact " in line]
    assert len(found) == 2 * mistake  # at once, in each process
    for line in found:
        record = line.partition("; record: ")[2]
        assert read(Path(record)).findings
        assert f"kvproof: record: {record}" in lines[at:]
    assert not list((tmp_path / "records").glob("run-*"))


WAITING = """
import multiprocessing, os, signal, sys, threading
from kvproof.watch import run
named, write = threading.Event(), sys.stderr.write
def seen(text):
    if " was killed, or died; " in text:
        named.set()
    return write(text)
sys.stderr.write = seen
run.SAVE_S = 1e9
def core():
    test_answers()
    test_answers()
    os.kill(os.getpid(), signal.SIGKILL)
multiprocessing.get_context("fork").Process(target=core, name="EngineCore").start()
from kvproof.watch import switch
switch._watching.wait_for_cores()  # as after vLLM has started its cores
named.wait(600)  # as a call that waits for an answer
print("kvproof: the call has returned", file=sys.stderr)
"""


@pytest.mark.nightly
@pytest.mark.live
def test_a_core_that_was_killed_is_named_while_a_call_waits_for_it(tmp_path: Path) -> None:
    ran = run(RUN.format(mistake=False) + WAITING, "record", folder=tmp_path / "records")
    lines = [line for line in ran.stderr.splitlines() if line.startswith("kvproof: ")]
    returned = lines.index("kvproof: the call has returned")
    killed = [n for n, line in enumerate(lines) if " was killed, or died; its last saved " in line]
    assert killed[0] < returned
    assert lines[killed[0]].endswith("A call that waits for it may not return")
    assert sum(n < returned for n in killed) == 1


LEFT_OUT = (
    "KVPROOF=raise is set, but VLLM_PLUGINS=lora leaves kvproof out, so no engine is watched. "
    "Use VLLM_PLUGINS=lora,kvproof."
)


def test_where_vllm_leaves_the_plugin_out_doctor_and_the_switch_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.cli import doctor
    from kvproof.watch import switch

    monkeypatch.setenv("KVPROOF", "raise")
    monkeypatch.setenv("VLLM_PLUGINS", "lora")
    assert next(doctor.watched()) == LEFT_OUT
    monkeypatch.setattr(switch, "_watching", None)
    assert switch.dump() == []
    assert capsys.readouterr().err == f"kvproof: {LEFT_OUT}\n"
    monkeypatch.setenv("VLLM_PLUGINS", "lora,kvproof")
    assert next(doctor.watched()) == "KVPROOF=raise: an engine that is started here is watched."


def test_doctor_shows_the_processes_that_are_watched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.cli import doctor

    monkeypatch.setenv("KVPROOF_DIR", str(tmp_path))
    monkeypatch.delenv("KVPROOF", raising=False)
    saved = {"pid": os.getpid(), "name": "EngineCore", "ended": False}
    saved["numbers"] = {"watched": {"engines": 1, "steps": 3}, "times_judged": {"pool_adds_up": 4}}
    folder = tmp_path / "run-1-2"
    folder.mkdir()
    (folder / "pid7.json").write_text(f"{7:020d}\n{json.dumps(saved)}", encoding="utf-8")
    first, second = doctor.watched()
    assert first == "KVPROOF is not set: an engine that is started here is not watched."
    assert second == (
        f"run-1-2: EngineCore pid {os.getpid()} still runs, and is reported as it is at step 7: "
        "no violation in 7 steps of 1 engine."
    )
    assert capsys.readouterr().err == ""
