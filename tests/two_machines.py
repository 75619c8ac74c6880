"""What the tests of a comparison drive: the model as base and as head, with the same workloads, and
breaks made by hand."""

from collections.abc import Iterable
from threading import Lock
from typing import Any

from kvproof.gate.difference import judged
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Need, Needed, Record
from kvproof.gate.difference.result import Result, result_of
from kvproof.gate.difference.workload import Again, Episodes, Follow, Play, Workload
from kvproof.live.connectors.judging import CONTRACT
from kvproof.model import planting
from kvproof.model.events import Complete, Event, Submit
from kvproof.model.faults.fault import replaced_by
from kvproof.model.faults.registry import fault_named
from kvproof.model.finding import Finding, Signature
from kvproof.model.machine import ModelMachine
from kvproof.model.plans.connector import ConnectorPlan, RunSteps
from kvproof.model.presets import CLUSTERS
from tests.reasons import said

FULL = CLUSTERS["full"]
ALONE = Lock()
NO_OTHERS: planting.Replaced = {}


def driven(
    workload: Workload, faults: Iterable[str] = (), replaced: planting.Replaced = NO_OTHERS
) -> Result:
    """The result of a workload on the model with these faults, and with other functions that are
    replaced. A fault is in the whole process, and a comparison drives its two sides in threads:
    here one waits for the other."""
    others = {**replaced_by(map(fault_named, faults)), **replaced}
    with ALONE, planting.planted(others):
        assert isinstance(workload, Follow | Again | Episodes)
        found = judged.driven(workload, ModelMachine)
    return result_of(workload.name, found, taken=isinstance(workload, Episodes))


def broken(
    check: str,
    event: str = "Schedule",
    *,
    by: str = "",
    length: int = 3,
    after: tuple[Any, ...] = (),
    yet: str = "not this",
) -> Break:
    """A break of a check, shown by a run of this many events on the preset `full`. `yet` is the
    fact that contradicts the other."""
    events: tuple[Event, ...] = (Submit("E", "r0"), *[Complete("E")] * (length - 1))
    signature = Signature(check, event, "full")
    finding = Finding(check, said("this", yet))
    return Break(signature, by, "", finding, FULL, events[:length], after)


def unkept(rule: str, actions: int = 3, *, connector: str = "example") -> Break:
    """A break of a check of the contract of connectors in a plan of so many actions."""
    plan = ConnectorPlan(FULL.engines[0], tuple(RunSteps(times) for times in range(1, actions + 1)))
    return Break(
        Signature(rule, "Step", "full"),
        "",
        "",
        Finding(rule, said("this", "not this")),
        FULL,
        plan=Play("", connector, plan),
        severity=CONTRACT[rule].severity,
    )


def result(name: str, *breaks: Break, **more: Any) -> Result:
    """The result of a workload with these breaks."""
    return Result(name, breaks=breaks, **more)


def taken(mark: int = 0, needed: tuple[Need, ...] = (), **counts: int) -> Record:
    """The record of a run of one event that came to its end."""
    named = {name.replace("_", " "): number for name, number in counts.items()}
    return Record((mark,), named, tuple(Needed(each, 1) for each in needed), whole=True)
