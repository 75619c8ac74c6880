"""Plans of connectors and of engine cores: the driver of its kind takes each, and all are judged,
told in words and written in one way."""

from pathlib import Path

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
from kvproof.live.availability import installed
from kvproof.model.events import describe
from kvproof.model.finding import Finding
from kvproof.model.plans import connector, engine
from kvproof.model.traces.lines import NamedConnector
from kvproof.model.traces.trace import PlanRun, write_in


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
        around_scheduler.drive(workload, found, note)
    else:
        from kvproof.gate.side import connector_plans  # imports all of vLLM

        connector_plans.drive(workload, found, note)
    return result_of(workload.name, found, excused=excused)


def in_words(found: Fixed) -> tuple[str, ...]:
    """The events of a run, or its plan, a line for each part."""
    if isinstance(found, Follow):
        return tuple(describe(event) for event in found.events)
    if isinstance(found, Engine):
        return tuple(engine.lines(found.plan))
    return tuple(connector.lines(found.plan))


def written(found: Planned, finding: Finding, stem: str, folder: Path, tree: str = "") -> Path:
    """Write the plan of a finding, of the vLLM in the folder `tree` where it is not the installed
    one, to a new file, which is named after its kind and this. Raises UsageError."""
    vllm = installed()
    if isinstance(found, Engine):
        run = PlanRun(found.plan, finding=finding, vllm=vllm, tree=tree)
        return write_in(folder, f"{ENGINE}-{stem}", run)
    run = PlanRun(found.plan, NamedConnector(found.connector), finding, vllm=vllm, tree=tree)
    return write_in(folder, f"connector-{stem}", run)
