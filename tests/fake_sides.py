"""Sides of a comparison made by hand: a function says what they do. No process is started."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.protocol import Accepts, Recorded, RecordRun, Seen
from kvproof.gate.difference.record import NOT_TAKEN, Broken, Course, Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Follow, Workload, follow
from kvproof.gate.search.comparison import Comparison
from kvproof.invariants.registry import CHECKS
from tests.two_machines import FULL, broken, result

CRASH, LEAK = broken("engine_survives", length=6), broken("all_blocks_return", length=4)
SOME = "v1/core/block_pool.py:BlockPool.free"

Does = Callable[[Workload], Result]


def _whole(found: Result, run: Workload) -> Result:
    """A result that does not say how a run was taken: it was, to its end."""
    if found.course != NOT_TAKEN or not isinstance(run, Follow):
        return found
    return replace(found, course=Course(ended=True, judged=tuple(CHECKS)))


def is_like(workload: Workload) -> bool:
    """Whether a workload is of fresh runs in which a break of head is tried."""
    return workload.name.startswith("runs like ")


def is_tried(workload: Workload) -> bool:
    """Whether a workload is of any runs in which a break of head is tried."""
    return is_like(workload) or "variants from" in workload.name


def _with_records(found: Result, run: Workload) -> Result:
    """A result of a run that is taken again, or of runs like it, with their records: each of them
    shows all of its breaks."""
    if found.records or not (is_tried(run) or run.name.endswith(", again")):
        return found
    broken = tuple(Broken(each.need) for each in found.breaks if not each.finding.excuses)
    record = Record(broken=broken, whole=True)
    chosen = getattr(run, "runs", None) or getattr(run, "plans", None) or ()
    number = len(chosen) or getattr(run, "episodes", 1)
    return replace(found, records=(record,) * number)


class FakeSide:
    """A side of which a function says what it does with a workload."""

    def __init__(self, does: Does, seen: Seen | None = None, recorded: Any = None) -> None:
        self.does = does
        self.seen = seen or Seen("", ())
        self.recorded = recorded or Recorded("t.jsonl", ("one", "two"))
        self.driven: list[str] = []
        self.watched: list[str] = []
        self.records: list[RecordRun] = []

    def look(self, _places: object) -> Seen:
        return self.seen

    def drive(
        self,
        runs: Sequence[Workload],
        *,
        reach: bool = False,
        judge: bool = True,
        **_more: bool,
    ) -> list[Result]:
        if not judge:  # a look
            return [self.does(each) for each in runs]
        self.driven += [each.name for each in runs]
        self.watched += self.driven[-len(runs) :] if reach else []
        found = [_with_records(self.does(each), each) for each in runs]
        return [_whole(each, run) for each, run in zip(found, runs, strict=True)]

    def accepts(self, _connector: str) -> Accepts:
        return Accepts()

    def record(self, request: RecordRun) -> Recorded:
        self.records.append(request)
        return self.recorded


def shows(*breaks: Break, **more: Any) -> Does:
    """Every workload shows these breaks."""
    return lambda workload: result(workload.name, *breaks, **more)


def first_only(*breaks: Break) -> Does:
    """Only a workload of the search shows them, and none that repeats it."""
    return lambda w: result(w.name, *(breaks if "," not in w.name else ()))


def nothing(workload: Workload) -> Result:
    return result(workload.name, reached=(SOME,))


RUN = follow(FULL, "finding x", CRASH.events)
OTHER = follow(FULL, "fault y", CRASH.events)


@contextmanager
def compared(
    base: Does | FakeSide, head: Does | FakeSide, *runs: Workload, seed: int = 0
) -> Iterator[Comparison]:
    """A comparison of two sides: each of these runs is driven, and what breaks in it is
    confirmed."""
    first, second = (
        each if isinstance(each, FakeSide) else FakeSide(each) for each in (base, head)
    )
    made = Comparison(first, second, seed)  # type: ignore[arg-type]
    try:
        for run in runs:
            made.confirm(made.drive([run]))
        yield made
    finally:
        made.close()
