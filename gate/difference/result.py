"""The result of a workload on one machine, as plain data that another process can read."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvproof.gate.difference.judged import Break, Judgement, Key, keep
from kvproof.gate.difference.record import NOT_TAKEN, Course, Pair, Record, severity_of
from kvproof.model.plans.part import Taken
from kvproof.model.severity import Severity


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """What a workload did on one machine.

    `reason` says why it could not be run; then the rest is empty. `steps` counts events. `records`
    has what each run shows, in order, so that the runs of two machines can be compared; `kinds`
    names the cache groups of each run of a connector. `taken` are the runs of random episodes, and
    `excused` the breaks that have excuses: both only where they were asked for. `reached` has the
    changed files, functions and statements that were reached, as `Look` names them, where the run
    was `watched`. `course` is how the last run was taken. `without_loops` says why some loops of
    engines could not be driven, and what their start-ups show is there; `unconnected` counts the
    start-ups without a loop because their connector has no place for the layers.
    """

    name: str
    reason: str = ""
    breaks: tuple[Break, ...] = ()
    steps: int = 0
    records: tuple[Record, ...] = ()
    kinds: tuple[str, ...] = ()
    taken: tuple[Taken, ...] = ()
    excused: tuple[Break, ...] = ()
    reached: tuple[str, ...] = ()
    watched: bool = False
    course: Course = NOT_TAKEN
    without_loops: str = ""
    unconnected: int = 0

    @property
    def keys(self) -> dict[Key, Break]:
        """What broke, by key."""
        return {each.key: each for each in self.breaks}


def result_of(
    name: str,
    found: Judgement,
    *,
    taken: bool = False,
    excused: bool = False,
) -> Result:
    """The result with what was found in the runs of a workload. With `taken`, it has the runs, and
    with `excused` the breaks that have excuses."""
    return Result(
        name,
        breaks=tuple(found.breaks.values()),
        steps=found.steps,
        records=tuple(found.records),
        course=found.course,
        taken=tuple(found.taken) if taken else (),
        excused=tuple(found.excused.values()) if excused else (),
        kinds=found.kinds,
        without_loops=found.without_loops,
        unconnected=found.unconnected,
    )


def pairs(base: Result, head: Result) -> list[Pair]:
    """The runs that both sides took, each with what both show; none where a side could not be
    driven, or they have not the same runs."""
    if base.reason or head.reason or len(base.records) != len(head.records):
        return []
    return [Pair(*both) for both in zip(base.records, head.records, strict=True)]


def joined(name: str, parts: Sequence[Result]) -> Result:
    """The results of the parts of one workload as one result. A part that could not be run is a
    workload that could not be run, and so is one without parts: the other side has drawn none."""
    if not parts:
        return Result(name, reason="the other side has drawn no run of it")
    failed = next((each for each in parts if each.reason), None)
    if failed is not None:
        return replace(failed, name=name)
    breaks: dict[Key, Break] = {}
    for each in (found for part in parts for found in part.breaks):
        keep(breaks, each)
    return Result(
        name,
        breaks=tuple(breaks.values()),
        steps=sum(part.steps for part in parts),
        records=tuple(each for part in parts for each in part.records),
        taken=tuple(each for part in parts for each in part.taken),
        excused=tuple(each for part in parts for each in part.excused),
        reached=tuple(sorted({key for part in parts for key in part.reached})),
        watched=all(part.watched for part in parts),
        without_loops=next((part.without_loops for part in parts if part.without_loops), ""),
        unconnected=sum(part.unconnected for part in parts),
    )


def severity(found: Break) -> Severity:
    """What a user would notice."""
    return severity_of(found.signature.check) if found.severity is None else found.severity
