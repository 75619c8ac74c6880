"""The engine around the scheduler as one side of a comparison of two vLLMs: what its start-up and
its loop break."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kvproof.gate.difference.course import NOT_TAKEN, Course
from kvproof.gate.difference.judged import Break, Key, Note
from kvproof.gate.difference.record import Record, Recorder
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Loop, Loops, Start, Starts
from kvproof.invariants.check import Check, Tally, broken_by
from kvproof.invariants.engines import engine_survives
from kvproof.invariants.registry import checks_of
from kvproof.live.contract.lookup import last_line
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.files.folders import made_folder
from kvproof.model.files.writing import write_fresh
from kvproof.model.finding import Finding
from kvproof.model.plans.loop import LoopPlan
from kvproof.model.plans.loop import lines as loop_lines
from kvproof.model.plans.loop import random_plan as random_loop
from kvproof.model.plans.startup import StartupPlan
from kvproof.model.plans.startup import lines as start_lines
from kvproof.model.plans.startup import random_plan as random_startup
from kvproof.model.presets import CLUSTERS
from kvproof.model.signature import Signature

APART = 1 << 20
"""Two workloads whose seeds differ have no plan in common."""

TRIES = 2_000
"""The number of random starts among which those with the kinds of layers of another are looked for:
there may be none."""

CHECKS: dict[str, Check] = {check.id: check for check in checks_of(Startup, Played)}
"""The checks of both by id."""


class Kind(NamedTuple):
    """The start-up, or the loop: its name, its event, what comes of its plans, and what is done
    with them."""

    name: str
    event: str
    judged: type[Startup] | type[Played]
    plan: type[Any]
    random_plan: Callable[[int], Any]
    lines: Callable[[Any], list[str]]
    taken: Callable[[Any], list[Any]]


def _started(plan: StartupPlan) -> list[Any]:
    from kvproof.live.core.starts import starts

    return list(starts(plan))


def _looped(plan: LoopPlan) -> list[Any]:
    from kvproof.live.core.episode import played

    return [played(plan)]


START = Kind(Start.WHAT, "Start", Startup, StartupPlan, random_startup, start_lines, _started)
LOOP = Kind(Loop.WHAT, "Loop", Played, LoopPlan, random_loop, loop_lines, _looped)


def kind_of(workload: Start | Starts | Loop | Loops) -> Kind:
    """What a workload drives."""
    return START if isinstance(workload, Start | Starts) else LOOP


def kind_of_file(plan: object) -> Kind:
    """What the plan of a file drives: a plan of the loop has actions."""
    return LOOP if isinstance(plan, dict) and Loop.PARTS in plan else START


def warm() -> None:
    """Import all of vLLM that is needed, before the first fork. Where this fails, the first plan
    says why."""
    with contextlib.suppress(Exception, AdapterDrift):
        import kvproof.live.core.episode
        import kvproof.live.core.starts  # noqa: F401


def taken(kind: Kind, plan: Any) -> list[Any]:
    """What comes of a plan. Raises AdapterDrift where this vLLM cannot be driven like this."""
    try:
        return kind.taken(plan)
    except ImportError as error:
        why = f"The {kind.name} of this vLLM cannot be driven ({last_line(error)})"
        raise AdapterDrift(why, "") from error


def broken(seen: Startup | Played, tally: Tally | None = None) -> Iterator[Finding]:
    """The findings of a start or of a loop, the gravest first: of each check the first. Of what was
    refused or has died, few checks are asked."""
    lives = seen.accepted if isinstance(seen, Startup) else not seen.died
    for check in checks_of(type(seen)):
        if lives or check.of_dead:
            # All are judged, as what comes later may have an excuse.
            yield from [*broken_by([check], seen, tally)][:1]


def driven(
    workload: Start | Starts | Loop | Loops,
    place: int | None = None,
    note: Note | None = None,
    *,
    excused: bool = False,
) -> Result:
    """What the plans of a workload break. With `place`, the result says how a plan was taken.
    `note` is called after each plan. With `excused`, the result has the breaks that have
    excuses."""
    kind = kind_of(workload)
    if isinstance(workload, Start | Loop):
        plans = [msgspec.convert(workload.plan, kind.plan)]
    else:
        plans = [*islice(_random(kind, workload), workload.plans)]
    kept: dict[Key, Break] = {}
    with_excuse: dict[Key, Break] = {}
    seen: list[Any] = []
    died: list[str] = []
    records: list[Record] = []
    for plan in plans:
        seen = taken(kind, plan)
        found = [(one, finding) for one in seen for finding in _judged(one)]
        records.append(_record(seen, [finding for _, finding in found]))
        if note is not None:
            note(_abstract(kind, plan, seen))
        died += [each.died.words for each in seen[:1] if each.died]
        for one, finding in found:
            each = _break(kind, plan, one, finding)
            breaks = with_excuse if finding.excuses else kept
            if each.key not in breaks or each.length < breaks[each.key].length:
                breaks[each.key] = each
    alike = isinstance(workload, Starts) and workload.like is not None
    if len(plans) == len(died) > 1 and not alike:  # what starts nothing is no vLLM that a user has
        raise AdapterDrift(f"No engine of this vLLM starts ({died[0]})", "EngineCore")
    return Result(
        workload.name,
        breaks=tuple(kept.values()),
        whole=True,
        steps=len(plans),
        records=tuple(records),
        excused=tuple(with_excuse.values()) if excused else (),
        course=NOT_TAKEN if place is None else _course(kind, seen),
    )


def _judged(one: Startup | Played) -> Iterator[Finding]:
    """The violations of a start or of a loop, and the breaks that have excuses."""
    tally = Tally()
    yield from broken(one, tally)
    yield from tally.take_kept()


def _record(seen: Iterable[Startup | Played], found: Iterable[Finding]) -> Record:
    """What the starts of a plan, or its loop, show, with their breaks. A loop that ran without end
    shows no more."""
    recorder, whole = Recorder(), False
    for each in seen:
        died = each.died.place if each.died else ""
        endless = isinstance(each, Played) and each.busy
        whole = not (died or endless)
        recorder.marked(each.marks)
        if isinstance(each, Startup) and each.run is not None:
            recorder.marked(each.run.marks)
        recorder.seen((*each._replace(died=None)[1:], died))
        for name, number in each.counts:
            recorder.count(name, number)
    for finding in found:
        recorder.judged(finding)
    return recorder.made(whole=whole)


def _random(kind: Kind, workload: Starts | Loops) -> Iterator[Any]:
    """The random plans of a workload."""
    plans = (kind.random_plan(workload.seed * APART + number) for number in count())
    if isinstance(workload, Loops) or workload.like is None:
        return plans
    kinds = msgspec.convert(workload.like, StartupPlan).kinds
    return (plan for plan in islice(plans, TRIES) if plan.kinds == kinds)


def single(workload: Starts | Loops, number: int, name: str) -> Start | Loop | None:
    """The plan of a workload with this number, as a workload of this name; None if there are fewer
    plans."""
    kind = kind_of(workload)
    plan = next(islice(_random(kind, workload), number, None), None)
    made = Start if kind is START else Loop
    return None if plan is None else made(name, msgspec.to_builtins(plan))


def in_words(found: Start | Loop) -> tuple[str, ...]:
    """The plan, a line for each part."""
    kind = kind_of(found)
    return tuple(kind.lines(msgspec.convert(found.plan, kind.plan)))


def written(found: Start | Loop, rule: str, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Write the plan of a break of this check. Returns the path, and the plan in words. Raises
    UsageError."""
    made_folder(folder)
    text = json.dumps(found.plan, indent=2) + "\n"
    name = kind_of(found).name
    return write_fresh(folder, f"{name}-{rule}", ".json", text), in_words(found)


def _course(kind: Kind, seen: list[Any]) -> Course:
    """How a plan was taken. An engine that was refused, and a loop that never waited, show nothing
    of the checks."""
    dead = next((each.died.words for each in seen if each.died), "")
    shows = bool(seen) and not (seen[0].refused if kind is START else not seen[0].waits)
    judged = tuple(check.id for check in checks_of(kind.judged)) if shows else ()
    return Course(dead=dead, ended=not dead, judged=judged)


def _abstract(kind: Kind, plan: Any, seen: list[Any]) -> Iterator[str]:
    """The abstract steps of a plan: its layers or actions in pairs, each with how it ended."""
    parts = plan.layers if kind is START else plan.actions
    names = (type(each).__name__ if kind is LOOP else each.kind for each in parts)
    end = next((word for word in ("died", "refused") if any(getattr(e, word, 0) for e in seen)), "")
    yield from (f"{one}, {other}: {end}" for one, other in pairwise((kind.name, *names)))


def _feature(kind: Kind, seen: Any, finding: Finding) -> str:
    """What is different between breaks of one check: what its reasons say, and the kinds of layers,
    since one check is broken for several causes; between hangs: a vLLM that forgets the null block
    lacks one block, and may have other mistakes."""
    parts = [str(each.facts["feature"]) for each in finding.reasons if "feature" in each.facts]
    if isinstance(seen.plan, StartupPlan):
        parts += seen.plan.kinds
    if CHECKS[finding.invariant].judged != (kind.judged,):
        # What other engines break of such a check hides nothing here.
        parts.append(f"a {kind.name}")
    if finding.invariant == "admitted_length_is_served":
        parts.append("lacks a block" if seen.lacks <= 1 else "lacks blocks")
    return ", ".join(parts)


def _break(kind: Kind, plan: Any, seen: Any, finding: Finding) -> Break:
    died = seen.died if finding.invariant == engine_survives.id else None
    one = Start if kind is START else Loop
    return Break(
        signature=Signature(finding.invariant, kind.event, _feature(kind, seen, finding)),
        by="",
        death=died.place if died else "",
        finding=finding,
        cluster=msgspec.structs.replace(CLUSTERS["full"], name=kind.name, jobs=()),
        events=(),
        index_of_first=0,
        after=(),
        statement=died.statement if died else "",
        plan=one("", msgspec.to_builtins(plan)),
        severity=CHECKS[finding.invariant].severity,
    )
