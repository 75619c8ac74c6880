"""Plans of connectors and of engine cores: the driver of its kind takes each, and all are judged,
told in words and written in one way."""

from pathlib import Path

import msgspec

from kvproof.gate.difference.judged import Judgement, Note
from kvproof.gate.difference.result import Result, result_of
from kvproof.gate.difference.workload import (
    ENGINE,
    Engine,
    Engines,
    Fixed,
    Follow,
    Planned,
    Play,
    Plays,
)
from kvproof.gate.side import around_scheduler
from kvproof.model.events import describe
from kvproof.model.files.folders import made_folder
from kvproof.model.files.writing import write_fresh
from kvproof.model.plans import connector, engine


def driven(
    workload: Play | Plays | Engine | Engines,
    note: Note | None = None,
    *,
    excused: bool = False,
) -> Result:
    """What the plans of a workload break. `note` is called after each action, or after each engine
    core. With `excused`, the result has the breaks that have excuses. Raises AdapterDrift where
    this vLLM cannot be driven like this."""
    found = Judgement()
    if isinstance(workload, Engine | Engines):
        more = around_scheduler.drive(workload, found, note)
    else:
        from kvproof.gate.side import connector_plans  # imports all of vLLM

        more = connector_plans.drive(workload, found, note)
    result = result_of(workload.name, found, excused=excused)
    return msgspec.structs.replace(result, **more)


def in_words(found: Fixed) -> tuple[str, ...]:
    """The events of a run, or its plan, a line for each part."""
    if isinstance(found, Follow):
        return tuple(describe(event) for event in found.events)
    if isinstance(found, Engine):
        return tuple(engine.lines(found.plan))
    return tuple(connector.lines(found.plan))


def write_plan(found: Planned, stem: str, folder: Path) -> Path:
    """Write a plan to a new file, which is named after its kind and this. Raises UsageError."""
    made_folder(folder)
    kind = ENGINE if isinstance(found, Engine) else "connector"
    text = msgspec.json.format(msgspec.json.encode(found.plan), indent=2).decode()
    return write_fresh(folder, f"{kind}-{stem}", ".json", text + "\n")


def written(
    found: Planned, rule: str, folder: Path
) -> tuple[Path, tuple[str, ...], tuple[str, ...]]:
    """Write the plan of a break of this check. Returns the path, the plan in words, and the words
    of the command that shows it again. Raises UsageError."""
    path = write_plan(found, rule, folder)
    if isinstance(found, Engine):
        return path, in_words(found), ("replay", str(path))
    from kvproof.gate.side import connector_plans

    return path, in_words(found), (*connector_plans.command(found), "--replay", str(path))
