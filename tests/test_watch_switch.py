"""The switches of the sanitizer: an environment variable for vLLM, and an option of pytest."""

import re
import subprocess
from pathlib import Path

import pytest

from kvproof.model.records.record import read
from tests.cover import others_nightly
from tests.processes import python

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


@pytest.mark.live
@pytest.mark.parametrize("mode", others_nightly(["record", "warn", "raise"], ["raise"]))
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
