"""What one side of a comparison does for each request."""

from pathlib import Path

from msgspec.structs import replace

from kvproof.gate.difference import judged
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.protocol import (
    Answer,
    AskAccepts,
    Drive,
    Driven,
    InFork,
    OfFile,
    OfFileDone,
    Recorded,
    RecordRun,
    Seen,
    failed,
)
from kvproof.gate.difference.result import Result, result_of
from kvproof.gate.difference.workload import Again, Engines, Episodes, Planned, Plays
from kvproof.gate.side import around_scheduler, plans, unmade
from kvproof.gate.side.unmade import EngineUnmade
from kvproof.gate.source.probes import Probes, reached
from kvproof.gate.source.statements import Places
from kvproof.invariants.check import Tally, broken
from kvproof.invariants.registry import CHECKS, check_named
from kvproof.live.availability import importable, installed, place
from kvproof.live.blame import is_ours
from kvproof.live.contract.features import CORE, FEATURES
from kvproof.live.contract_check import check
from kvproof.live.known.registry import KNOWN
from kvproof.live.reproducer import running
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.events import describe
from kvproof.model.finding import Finding, signature
from kvproof.model.machine import Machine
from kvproof.model.raised import places
from kvproof.model.step import Step
from kvproof.model.traces.state_diff import diff, flat
from kvproof.model.traces.trace import Trace, write_in
from kvproof.reports.gate_output import GateLost
from kvproof.strategies.run import Run

FRAMES_MAX = 5
"""The frames of an exception that are told: the last ones."""


def look(probes: Probes) -> Seen:
    """What of this vLLM can be driven. vLLM is imported here, its changed files with probes."""
    contract = check()
    if contract.failure:
        lines = f"vLLM cannot be imported ({contract.failure})", *contract.traceback
        return Seen("\n".join(lines), (), lacks=contract.lacks)
    missing = []
    for feature in (name for name, each in FEATURES.items() if each.drives):
        lacking = [look for look in contract.missing(feature) if look.entry.feature == feature]
        if lacking:
            first = lacking[0]
            missing.append(GateLost(feature=feature, entry=first.entry.name, why=first.why))
    try:
        contract.require([CORE])
    except AdapterDrift as drift:
        return Seen(drift.why, tuple(missing))
    import kvproof.live.machine  # noqa: F401 (all of vLLM that is driven, before the first fork)
    from kvproof.gate.side import connector_plans

    around_scheduler.warm()
    known = connector_plans.known()
    unwatched = (f"{file} ({why})" for file, why in sorted(probes.unwatched.items()))
    return Seen("", tuple(missing), known, unwatched=tuple(unwatched))


def probes(places: Places) -> Probes:
    """Have the files of these places watched from now on. vLLM must not be imported yet."""
    try:
        made = Probes(importable(), places)
    except UsageError:  # `look` says what is missing
        return Probes(Path(), {})
    made.install()
    return made


def answer(request: InFork, probes: Probes) -> Answer:
    """Carry a request out. The probes are those that `reach` is about."""
    if isinstance(request, RecordRun):
        return _recorded(request)
    if isinstance(request, AskAccepts):
        from kvproof.gate.side import connector_plans

        try:
            return connector_plans.accepts(request.connector)
        except Exception as error:  # as in `_driven`
            return failed(request, _failure(error))
    if isinstance(request, OfFile):
        file = Path(request.path)
        if request.tested:
            return OfFileDone(tested=running.tested(file))
        return OfFileDone(observed=running.observed(file))
    return Driven(_with_reach(request, probes) if request.reach else _driven(request))


def _with_reach(request: Drive, probes: Probes) -> Result:
    """The result of a workload with what it reaches."""
    with reached(probes) as found:
        result = _driven(request)
    return replace(result, reached=tuple(sorted(found.keys)), watched=True)


def _driven(request: Drive) -> Result:
    """The result of a workload, or the reason why it could not be run."""
    workload = request.workload
    try:
        return _result(request)
    except AdapterDrift as drift:
        return Result(workload.name, reason=drift.why)
    except EngineUnmade as error:
        given = workload.runs if isinstance(workload, Again) else [workload]
        drawn = isinstance(workload, Episodes)  # it has drawn none
        return unmade.shown(workload.name, error, 0 if drawn else len(given))
    except Exception as error:
        return Result(workload.name, reason=_failure(error))


def _failure(error: Exception) -> str:
    """Why something could not be driven, and whose mistake that is, with the lines of kvproof and
    of vLLM that led to it."""
    whose = "kvproof's adapter fails here" if is_ours(error) else "vLLM fails outside of any event"
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    last = places(error)[-FRAMES_MAX:]
    lines = (f"{each.filename}:{each.lineno}: {each.line}" for each in last)
    return "\n".join((f"{whose} ({message})", *lines))


def _result(request: Drive) -> Result:
    workload = request.workload
    if isinstance(workload, Planned | Plays | Engines):
        return plans.driven(workload, excused=request.excused)
    known, checks = KNOWN.values(), CHECKS.values() if request.judge else ()
    found = judged.driven(workload, unmade.made, checks, known)
    taken = request.judge and isinstance(workload, Episodes)
    return result_of(workload.name, found, taken=taken, excused=request.excused)


def _recorded(request: RecordRun) -> Recorded:
    """Write the trace of a break. Nothing is written where it does not show again. The run of a
    connector is its plan."""
    found = request.found
    if found.plan is not None:
        try:
            folder = Path(request.folder)
            path = plans.written(found.plan, found.finding, request.stem, folder, _tree())
        except UsageError as error:
            return Recorded(error=str(error))
        return Recorded(str(path), plans.in_words(found.plan))
    try:
        machine = unmade.made(found.cluster)
    except EngineUnmade:
        return Recorded(error="an engine that cannot be made has no run")
    run = Run(machine, ())
    shown = None
    for _, taken in run.follow(found.events):
        shown = _shown(machine, run.steps[-1], found) if taken else None
        if shown is not None:
            break
    if CHECKS[found.signature.check].kind == "eventually":
        shown = found.finding
    if shown is None:
        return Recorded()
    trace = Trace(
        cluster=found.cluster,
        events=tuple(step.event for step in run.steps),
        changes=tuple(diff(flat(step.before), flat(step.after)) for step in run.steps),
        finding=shown,
        machine="live",
        vllm=installed(),
        tree=_tree(),
    )
    try:
        path = write_in(Path(request.folder), request.stem, trace)
    except UsageError as error:
        return Recorded(error=str(error))
    return Recorded(str(path), tuple(map(describe, trace.events)))


def _tree() -> str:
    """The folder of the vLLM of this process; empty where it is the installed one."""
    return "" if importable() == place() else str(place().parent)


def _shown(machine: Machine, step: Step, found: Break) -> Finding | None:
    """The finding of a break at a step, None where the step does not show it."""
    tally = Tally()
    unexcused = [*broken(machine.cluster, step, [check_named(found.signature.check)], tally)]
    for finding in (*unexcused, *tally.kept):
        if finding.excuses != found.finding.excuses:
            continue
        shape = signature(machine.cluster, step.event, finding)
        if shape == found.signature and judged.death_of(step, finding) == found.death:
            return finding
    return None
