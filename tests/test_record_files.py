"""When a record is written, where, and what happens where it cannot be."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.record import read
from tests.mistakes import MISTAKES

pytestmark = pytest.mark.live

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
        from kvproof.live.machine import LiveMachine
        from kvproof.model.config import Job

        jobs = [Job(f"r{n}", "abcdefg", 1) for n in range(steps)]
        self.machine = LiveMachine(FULL.carrying(*jobs))
        scheduler = self.machine.nodes["E"].scheduler
        self.watching.gaps[type(scheduler)] = ""  # the driver has put its own hooks there
        self.watching.attach(scheduler)
        for job in jobs:
            for event in (Submit("E", job.name), Schedule("E"), Complete("E")):
                if event in self.machine.stimuli() or isinstance(event, Schedule):
                    self.machine.take(event)
            while self.machine.state.engines[0].requests:
                self.machine.take(Schedule("E"))
                self.machine.take(Complete("E"))

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
        lines = [line for line in shown.splitlines() if not line.startswith("Replay it: ")]
        assert max(map(len, lines)) <= 80
        code = main(["replay", str(path)])
        begins = {0: "NOT SHOWN AGAIN: all ", 3: "NOT FOLLOWED: "}[code]
        assert capsys.readouterr().out.startswith(begins)


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


def test_without_a_violation_nothing_is_written(folder: Path) -> None:
    watched = Watched()
    watched.run(3)
    watched.watching.dumps.at_exit()
    assert watched.watching.dumps.lines() == []
    assert files(folder) == []


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


@pytest.mark.usefixtures("broken", "folder")
def test_a_mistake_in_the_record_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.watch import dumps

    def record_of(*_: Any, **_named: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(dumps, "record_of", record_of)
    watched = Watched()
    watched.run(3)
    assert "no record: kvproof made a mistake (ZeroDivisionError: a mistake)" in watched.text
    assert not watched.watching.judges[0].why_off


def test_the_death_of_an_engine_is_in_its_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.allocate_slots
    calls: list[Any] = []

    def dies(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(request)
        assert len(calls) < 4, "no blocks today"
        return original(self, request, *args, **kwargs)

    monkeypatch.setattr(KVCacheManager, "allocate_slots", dies)
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
def test_a_signal_asks_for_records(folder: Path) -> None:
    watched = Watched()
    watched.watching.dumps.listen()
    signal.raise_signal(signal.SIGUSR2)
    assert watched.said == ["no record: no engine is watched in this process"]
    watched.run(1)
    signal.raise_signal(signal.SIGUSR2)
    assert watched.said[1:] == [f"record: {path}" for path in files(folder)]
    assert len(files(folder)) == 1


@pytest.mark.usefixtures("no_handler")
def test_the_handler_of_somebody_else_stays() -> None:
    def handler(*_: Any) -> None:
        """Somebody else's."""

    signal.signal(signal.SIGUSR2, handler)
    Watched().watching.dumps.listen()
    assert signal.getsignal(signal.SIGUSR2) is handler


@pytest.mark.usefixtures("no_handler")
def test_only_the_main_thread_listens() -> None:
    thread = threading.Thread(target=Watched().watching.dumps.listen)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
