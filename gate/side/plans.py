"""Plans of connectors and of engine cores: the driver of its kind drives each, and writes it."""

from pathlib import Path

from kvproof.gate.difference.judged import Note
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Engine, Engines, Planned, Play, Plays
from kvproof.gate.side import around_scheduler


def driven(
    workload: Play | Plays | Engine | Engines,
    place: int | None = None,
    note: Note | None = None,
    *,
    excused: bool = False,
) -> Result:
    """What plans break. Raises AdapterDrift where this vLLM cannot be driven like this."""
    if isinstance(workload, Engine | Engines):
        return around_scheduler.driven(workload, place, note, excused=excused)
    from kvproof.gate.side import connector_plans  # imports all of vLLM

    return connector_plans.driven(workload, place, note, excused=excused)


def written(
    found: Planned, rule: str, folder: Path
) -> tuple[Path, tuple[str, ...], tuple[str, ...]]:
    """Write the plan of a break of this check. Returns the path, the plan in words, and the words
    of the command that shows it again. Raises UsageError."""
    if isinstance(found, Engine):
        return around_scheduler.written(found, rule, folder)
    from kvproof.gate.side import connector_plans

    return connector_plans.written(found, rule, folder)
