"""Records of real vLLM: when and where they are written, and that they say what happened."""

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.config import Job
from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Compute,
    Event,
    Evict,
    Preempt,
    Release,
    ResetRunning,
    Schedule,
    Submit,
)
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.record import Record, followed, read, write_in
from tests.in_vllm import MANAGER, around
from tests.mistakes import MISTAKES
from tests.recorded import run as driven
from tests.reference.schemas import text
from tests.watching import live_machine, serve

pytestmark = pytest.mark.live


# When a record is written, and where


FULL = CLUSTERS["full"]


class Watched:
    """Live vLLM of the preset `full`, watched as a switch does it. `said` has what is printed."""

    def __init__(self, mode: str = "warn") -> None:
        from kvproof.watch.watching import Watching

        self.said: list[str] = []
        self.watching = Watching(mode, self.said.append)
        self.machine: Any = None

    def run(self, steps: int = 12) -> None:
        """The same prompt again and again, so that it is hit."""
        jobs = [Job(f"r{n}", "abcdefg", 1) for n in range(steps)]
        self.machine = live_machine(FULL.carrying(*jobs))
        scheduler = self.machine.nodes["E"].scheduler
        self.watching.gaps[type(scheduler)] = ""  # the driver has put its own hooks there
        self.watching.attach(scheduler)
        for job in jobs:
            serve(self.machine, job.name)

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPROOF_DIR", str(tmp_path / "mine" / "records"))
    return tmp_path / "mine" / "records"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM with a mistake."""
    MISTAKES["untouched_hits"].patch(monkeypatch)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.mark.usefixtures("broken")
def test_a_violation_writes_one_record_of_its_kind(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched()
    watched.run()
    counts = watched.watching.counts
    assert counts
    assert max(counts.values()) > 1
    names = {f"{kind}-pid{os.getpid()}-engine1.jsonl" for kind in counts}
    assert {path.name for path in files(folder)} == names
    for path in files(folder):
        assert f"record: {path}" in watched.text
        record = read(path)
        assert record.header.why == "violation"
        assert path.name.startswith(f"{record.findings[-1].invariant}-pid")
        assert record.header.from_start
        assert main(["report", str(path)]) == 0
        shown = capsys.readouterr().out
        for finding in record.findings:
            assert f"BROKEN: {finding.invariant} (severity: " in shown
        assert "It must be true that " in shown
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.usefixtures("broken")
def test_what_follows_a_violation_is_written_at_the_exit(folder: Path) -> None:
    watched = Watched("record")
    watched.run()
    before = files(folder)
    shown = sorted(line.rpartition("; ")[2] for line in watched.said if "VIOLATED" in line)
    assert shown == [f"record: {path}" for path in before]  # each at once, and only once
    watched.watching.dumps.at_exit()
    lines = watched.watching.dumps.lines()
    [new] = [path for path in files(folder) if path not in before]
    assert new.name == f"exit-pid{os.getpid()}-engine1.jsonl"
    assert sorted(lines[:-1]) == [f"record: {path}" for path in before]
    assert lines[-1] == f"record: {new}"
    watched.watching.dumps.at_exit()
    assert watched.watching.dumps.lines() == lines


def test_a_record_is_written_on_request_and_no_file_is_overwritten(folder: Path) -> None:
    watched = Watched()
    watched.run(2)
    stem = f"request-pid{os.getpid()}-engine1"
    first = watched.watching.dumps.on_request()
    assert first == [f"record: {folder / stem}.jsonl"]
    assert read(folder / f"{stem}.jsonl").header.why == "request"
    (folder / f"{stem}.jsonl").write_text("mine")
    assert watched.watching.dumps.on_request() == [f"record: {folder / stem}-2.jsonl"]
    assert (folder / f"{stem}.jsonl").read_text() == "mine"


def test_the_death_of_an_engine_is_in_its_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count(1)

    def dies(right: Any, *args: Any, **kwargs: Any) -> Any:
        assert next(calls) < 4, "no blocks today"
        return right(*args, **kwargs)

    around(f"{MANAGER}.allocate_slots", dies)(monkeypatch)
    with pytest.raises(Exception, match="not possible"):
        Watched().run()
    [path] = files(folder)
    assert path.name.startswith("engine_survives-pid")
    last = read(path).events[-1]
    assert last.event.raised.startswith("AssertionError: no blocks today")
    assert [finding.invariant for finding in last.findings] == ["engine_survives"]


@pytest.fixture
def no_handler() -> Iterator[None]:
    """Whatever handles the signal handles it again after the test."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("no_handler")
def test_a_signal_asks_for_records_where_nobody_else_handles_it(folder: Path) -> None:
    watched = Watched()
    watched.watching.dumps.listen()
    handler = signal.getsignal(signal.SIGUSR2)
    signal.raise_signal(signal.SIGUSR2)
    assert watched.said == ["no record: no engine is watched in this process"]
    watched.run(1)
    signal.raise_signal(signal.SIGUSR2)
    assert watched.said[1:] == [f"record: {path}" for path in files(folder)]
    assert len(files(folder)) == 1
    Watched().watching.dumps.listen()
    assert signal.getsignal(signal.SIGUSR2) is handler


@pytest.mark.usefixtures("broken")
def test_a_folder_that_cannot_be_made_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("KVPROOF_DIR", str(tmp_path / "taken"))
    watched = Watched()
    watched.run(3)
    assert "no record: The folder " in watched.text
    assert "VIOLATED " in watched.text
    assert not watched.watching.judges[0].why_off


# What a record says is what happened


PRESETS = [
    *("full", "hybrid-evicting", "resetting", "hybrid-async-drafts", "priority-hybrid"),
    *("partial", "sparse-three", "long-prefill-hybrid", "window-drafts"),
]


def driven_events(events: list[Event]) -> Iterator[tuple[Any, ...]]:
    """What each event did that the driver took, but for those that change nothing."""
    for event in events:
        match event:
            case Submit(request=name):
                yield "arrives", name
            case Schedule(chose=chose) if chose:
                yield (
                    "step",
                    [(c.request, c.tokens) for c in chose if isinstance(c, Compute)],
                    [(c.request, c.local_hit, c.external) for c in chose if isinstance(c, Admit)],
                    [(c.request, c.needy) for c in chose if isinstance(c, Preempt)],
                    [c.request for c in chose if isinstance(c, Release)],
                )
            case Complete():
                yield ("output",)
            case Evict(block=block):
                yield "evict", block
            case Abort(request=name):
                yield "abort", name
            case ResetRunning():
                yield ("reset",)


def recorded_events(record: Record) -> Iterator[tuple[Any, ...]]:
    """The same of a record."""
    for event, _ in record.events:
        if event.arrived is not None:
            yield "arrives", event.arrived.request
        admitted = [(each.request, each.hit, each.external) for each in event.admitted]
        lost = [(each.request, each.needy) for each in event.preempted]
        needy = {name for _, name in lost}  # a preemption is a release, too
        released = [name for name in event.released if name not in needy]
        if event.event == "schedule" and (event.tokens or admitted or lost or released):
            yield "step", [*event.tokens.items()], admitted, lost, released
        elif event.event == "update_from_output" and event.tokens:
            yield ("output",)
        elif event.event == "reset_prefix_cache" and event.running:
            yield ("reset",)
        elif event.event == "evict_blocks":
            yield from (("evict", block) for block in event.evicted)
        elif event.event == "finish_requests":
            yield from (("abort", name) for name in event.ended)


@pytest.mark.parametrize("name", PRESETS)
def test_a_record_is_the_run_that_was_driven(name: str, tmp_path: Path) -> None:
    for seed in range(2):
        run = driven(CLUSTERS[name], seed)
        path = write_in(tmp_path, "record", run.records["E"])
        record = read(path)
        assert record == run.records["E"]
        assert [*recorded_events(record)] == [*driven_events(run.events)]


@pytest.mark.parametrize("name", ["hybrid-evicting", "pd-window", "store-failing-async", "turns"])
def test_a_record_has_its_schema_and_no_token(name: str, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(text("record.json")))
    run = driven(CLUSTERS[name])
    for engine, record in run.records.items():
        path = write_in(tmp_path, engine, record)
        whole = path.read_text(encoding="utf-8")
        for line in map(json.loads, whole.splitlines()):
            check.validate(line)
            assert not check.is_valid({**line, "comment": "mine"})
        for job in run.cluster.jobs:
            ids = ",".join(str(ord(token)) for token in job.prompt)
            assert len(job.prompt) < 3 or (job.prompt not in whole and ids not in whole)


@pytest.mark.parametrize("name", ["full", "hybrid-evicting", "pd", "pd-window-wide"])
def test_the_tables_of_a_record_end_as_the_engine_did(name: str) -> None:
    for record in driven(CLUSTERS[name], steps=25).records.values():
        *_, last = followed(record)
        assert last.tables == {each.request: each.tables for each in record.state.requests}
