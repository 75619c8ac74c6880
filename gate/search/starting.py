"""Start-ups as one side of a comparison of two vLLMs: what the starts of a workload break."""

import contextlib
import json
from pathlib import Path

import msgspec

from kvproof.gate.difference.course import NOT_TAKEN, Course
from kvproof.gate.difference.judged import Break, Key
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Start, Starts
from kvproof.live.contract.lookup import last_line
from kvproof.live.startup.contract.rules import RULES, broken
from kvproof.live.startup.plan import Plan, drawn, lines
from kvproof.live.startup.seen import Start as Seen
from kvproof.model.errors import AdapterDrift
from kvproof.model.files.folders import made_folder
from kvproof.model.files.writing import write_fresh
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.model.signature import Signature

NAMED = msgspec.structs.replace(CLUSTERS["full"], name="start-up", jobs=())
"""The cluster of a break: only its name counts."""

APART = 1 << 20
"""Two workloads whose seeds differ have no plan in common."""


def warm() -> None:
    """Import all of vLLM that a start-up needs, before the first fork. Where this fails, starting
    says why."""
    with contextlib.suppress(Exception):
        import kvproof.live.startup.episode  # noqa: F401


def started(plan: Plan) -> list[Seen]:
    """The starts of a plan. Raises AdapterDrift where this vLLM has no such start-up."""
    try:
        from kvproof.live.startup.episode import starts
    except ImportError as error:
        raise AdapterDrift(f"This vLLM cannot be started ({last_line(error)})", "") from error
    return starts(plan)


def driven(workload: Start | Starts, place: int | None = None) -> Result:
    """What the starts of a workload break. With `place`, the result says how a plan was taken."""
    if isinstance(workload, Start):
        plans = [msgspec.convert(workload.plan, Plan)]
    else:
        plans = [drawn(workload.seed * APART + number) for number in range(workload.starts)]
    kept: dict[Key, Break] = {}
    seen: list[Seen] = []
    died: list[str] = []
    for plan in plans:
        seen = started(plan)
        died += [start.died.words for start in seen[:1] if start.died]
        for each in (_break(plan, start, found) for start in seen for found in broken(start)):
            if each.key not in kept or each.length < kept[each.key].length:
                kept[each.key] = each
    if len(plans) == len(died) > 1:  # what starts nothing is no vLLM that a user has
        raise AdapterDrift(f"No engine of this vLLM starts ({died[0]})", "EngineCore")
    return Result(
        workload.name,
        breaks=tuple(kept.values()),
        whole=True,
        steps=len(plans),
        course=NOT_TAKEN if place is None else _course(seen),
    )


def in_words(found: Start) -> tuple[str, ...]:
    """The plan, a line for each layer."""
    return tuple(lines(msgspec.convert(found.plan, Plan)))


def written(found: Start, rule: str, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Write the plan of a break of this rule. Returns the path, and the plan in words. Raises
    UsageError."""
    made_folder(folder)
    text = json.dumps(found.plan, indent=2) + "\n"
    return write_fresh(folder, f"start-up-{rule}", ".json", text), in_words(found)


def _course(seen: list[Seen]) -> Course:
    dead = next((start.died.words for start in seen if start.died), "")
    return Course(
        dead=dead,
        ended=not dead,
        judged=tuple(RULES) if seen and not seen[0].refused else (),
    )


def _feature(start: Seen, finding: Finding) -> str:
    """What is different between hangs: a vLLM that forgets the null block lacks one block, and may
    have other mistakes."""
    if finding.invariant != "admitted_length_is_served":
        return ""
    return "lacks a block" if start.lacks <= 1 else "lacks blocks"


def _break(plan: Plan, start: Seen, finding: Finding) -> Break:
    died = start.died if finding.invariant == "start_up_survives" else None
    return Break(
        signature=Signature(finding.invariant, "Start", _feature(start, finding)),
        by="",
        death=died.place if died else "",
        finding=finding,
        cluster=NAMED,
        events=(),
        index_of_first=0,
        after=(),
        statement=died.statement if died else "",
        plan=Start("", msgspec.to_builtins(plan)),
        severity=RULES[finding.invariant].severity,
    )
