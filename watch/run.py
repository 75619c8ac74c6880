"""A run is the process that was started with `KVPROOF`, and the processes that it starts, such as
engine cores. What each has judged is kept in a file as it goes, for a process may be killed at any
time. The first process, the parent of all, prints what they have found.

The files are in a folder of their own inside the folder of the records. It is removed when all of
it is printed.
"""

import contextlib
import multiprocessing
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path

import msgspec

from kvproof.model.errors import UsageError
from kvproof.model.files.decoding import decoded_json
from kvproof.model.files.folders import folder_errors
from kvproof.model.files.reading import read_bytes
from kvproof.model.files.writing import keep
from kvproof.watch.summary import Plain

FOLDER_VARIABLE = "KVPROOF_DIR"
FOLDER = "kvproof-records"
"""The folder of records and of runs: in the working folder, where `KVPROOF_DIR` names no other."""

VARIABLE = "KVPROOF_RUN"
"""The folder of the run, for the processes that its parent starts. Nobody has to set it."""

SAVE_S = 1.0
"""The time between two savings while the engine works, in seconds."""

DIGITS = 20
"""The digits of the number of steps, which is the first line of a file. It is written in place
after each step."""

GONE_S = 2.0
"""The time that the parent waits for a process that was just killed, in seconds."""

REPORTED = "reported"
"""The name of the file that says that the parent has printed all."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has judged, as it was saved last. `ended` means that it ended by itself."""

    pid: int
    name: str
    ended: bool
    numbers: Plain


class WatchedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a run: what it has saved, the number of steps that it has judged, and whether it
    still runs."""

    saved: Saved
    steps: int
    runs: bool

    @property
    def at_work(self) -> bool:
        """Whether the process may judge more."""
        return self.runs and not self.saved.ended

    @property
    def numbers(self) -> Plain:
        """The numbers that were saved, with the steps that were judged since."""
        watched = {**self.saved.numbers.get("watched", {}), "steps": self.steps}
        return {**self.saved.numbers, "watched": watched}

    @property
    def unsaved(self) -> int:
        """The number of steps that were judged after the last saving."""
        saved: int = self.saved.numbers.get("watched", {}).get("steps", 0)
        return self.steps - saved

    @property
    def lost(self) -> str:
        """What is not known of this process, in a sentence. Empty if it has saved all: `vllm serve`
        kills an idle engine core at its end."""
        if self.saved.ended or (not self.runs and not self.unsaved):
            return ""
        who = f"{self.saved.name} pid {self.saved.pid}"
        if self.runs:
            return f"{who} still runs, and is reported as it is at step {self.steps:,}"
        return (
            f"{who} was killed, or died; its last saved count is of step "
            f"{self.steps - self.unsaved:,}, and what was counted in {self.unsaved:,} more is lost"
        )


class WatchedRun:
    """The run of this process. `parent` says whether it is the first process of it, and `broken`
    why nothing can be kept on disk."""

    def __init__(self, *, forked: bool = False) -> None:
        self.pid = os.getpid()
        self._started_by = os.getppid()
        inherited = os.environ.get(VARIABLE)
        started = multiprocessing.parent_process() is not None or forked
        self.parent = inherited is None or not started
        self.broken = ""
        self._file: int | None = None
        self._saved_s = 0.0
        if self.parent:
            self.folder = _new(self.pid)
            try:
                with folder_errors(self.folder):
                    self.folder.mkdir(parents=True)
            except UsageError as error:
                self.broken = str(error)
            os.environ[VARIABLE] = "" if self.broken else str(self.folder)
        else:
            self.folder = Path(inherited or "")
            self.broken = "" if inherited else "its parent could not make a folder"

    # What this process does.

    def step(self, steps: int) -> None:
        """Write the number of steps that were judged to the file."""
        if self._file is not None:
            os.pwrite(self._file, _line(steps), 0)

    def is_due(self, *, idle: bool) -> bool:
        """Whether it is time to save: while the engine works, and always when it has become idle,
        for often nothing comes for a long time."""
        return not self.broken and (idle or time.monotonic() - self._saved_s > SAVE_S)

    def save(self, numbers: Plain, *, ended: bool = False) -> None:
        """Save what was judged so far. Raises UsageError where that is not possible, once."""
        if self.broken:
            return
        name = multiprocessing.current_process().name
        saved = Saved(pid=self.pid, name=name, ended=ended, numbers=numbers)
        data = _line(numbers["watched"].get("steps", 0)) + msgspec.json.encode(saved)
        try:
            file = keep(self.folder / f"pid{self.pid}.json", data)
        except UsageError as error:
            self.broken = str(error)
            raise
        finally:
            self._close()
        self._file, self._saved_s = file, time.monotonic()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def prints_summary(self) -> bool:
        """Whether this process prints what it has judged: it is the parent, or the parent has
        printed already, or cannot print any more, or gets nothing."""
        return self.parent or bool(self.broken) or self.is_reported or self.is_orphan

    @property
    def is_reported(self) -> bool:
        """Whether the parent has printed all that it knew."""
        return (self.folder / REPORTED).exists()

    @property
    def is_orphan(self) -> bool:
        """Whether the parent is gone. Without `is_reported` it was killed before it could print."""
        if self.parent or self.broken:
            return False
        first = int(self.folder.name.split("-")[1])
        if self._started_by == first:  # also while it is a zombie
            return os.getppid() != first
        return not _exists(first)

    # What the parent does.

    def others(self) -> list[WatchedProcess]:
        """Return the other processes that have judged something. One that was just killed may need
        a moment to be gone."""
        until = time.monotonic() + GONE_S
        found = self._others()
        while any(part.at_work for part in found) and time.monotonic() < until:
            time.sleep(0.02)
            found = self._others()
        return found

    def _others(self) -> list[WatchedProcess]:
        return [part for part in parts(self.folder) if part.saved.pid != self.pid]

    def killed(self) -> list[WatchedProcess]:
        """Return the other processes that ended before their work did."""
        return [part for part in self._others() if not part.runs and part.lost]

    def mark_reported(self) -> None:
        """Note that all is printed. A process that still runs prints the rest by itself."""
        self._close()
        with contextlib.suppress(OSError):
            (self.folder / REPORTED).touch()
        if not any(part.at_work for part in self._others()):
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # where it has no record


def parts(run: Path) -> Iterator[WatchedProcess]:
    """Read what the processes of a run have saved in its folder."""
    for path in sorted(run.glob("pid*.json")):
        try:
            steps, _, data = read_bytes(path, "file").partition(b"\n")
            saved = decoded_json(data, Saved, f"The file {path}", "a file that kvproof has written")
        except UsageError:  # it was removed just now
            continue
        yield WatchedProcess(saved=saved, steps=int(steps), runs=_runs(saved.pid))


def records() -> Path:
    """Return the folder of records and of runs."""
    return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)


def runs() -> Iterator[Path]:
    """Return the folders of the runs that are left: they still go on, or their parent was
    killed."""
    yield from sorted(records().glob("run-*-*"))


def _new(pid: int) -> Path:
    return (records() / f"run-{pid}-{time.time_ns() // 1000}").absolute()


def _line(steps: int) -> bytes:
    return b"%0*d\n" % (DIGITS, steps)


def _runs(pid: int) -> bool:
    """Whether a process runs. One that has ended, and for which nobody has waited yet, does not. It
    may be asked in any thread: who waits for the process still gets its exit code."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except AttributeError:  # macOS has no such call
        multiprocessing.active_children()  # those that have ended are gone after this
    except ChildProcessError:  # another process has started it
        pass
    return _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def at_end(work: Callable[[], None], owner: object, *, last: bool) -> None:
    """Do something when this process ends: as early as possible, or as the `last`, after all that
    it has started has ended. `owner` lives as long."""
    if multiprocessing.parent_process() is None:
        weakref.finalize(owner, work)  # what vLLM has made later is finalized before
    else:  # a forked process ends without that
        Finalize(None, work, exitpriority=-1 if last else 100)
