"""Machines that are driven by a test."""

from collections.abc import Iterable
from typing import TypeVar

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from kvproof.invariants.check import Check
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.machine import Machine
from kvproof.strategies.sampling.episode import CacheMachine, MakeMachine, Target

Driven = TypeVar("Driven", bound=Machine)


def taken(machine: Driven, *events: Event) -> Driven:
    """The machine after these events."""
    for event in events:
        machine.take(event)
    return machine


def check_machine(
    cluster: Cluster,
    make_machine: MakeMachine,
    invariants: Iterable[Check] | None = None,
    examples: int | None = None,
    shrink: bool = True,
) -> None:
    """Run episodes under the active Hypothesis profile; `examples` overrides their number. Raises
    Violated with the smallest failing run found, or, without `shrink`, with the failing run as it
    was first found."""
    chosen = None if invariants is None else tuple(invariants)
    target = Target(cluster, make_machine, chosen)
    unwanted = {hypothesis.Phase.explain} | (set() if shrink else {hypothesis.Phase.shrink})
    settings = hypothesis.settings(
        max_examples=examples or hypothesis.settings().max_examples,
        phases=[p for p in hypothesis.Phase if p not in unwanted],
        report_multiple_bugs=False,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(lambda: CacheMachine(target), settings=settings)  # type: ignore[arg-type]
