"""Coverage: which abstract steps of the model a machine has exercised.

If a release of vLLM never took a step, its result says nothing about that step, even if all checks
pass.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus
from kvproof.model.machine import Machine
from kvproof.model.reference import apply as model
from kvproof.strategies.explorer.explorer import explored
from kvproof.strategies.explorer.running import Limits
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.abstract_steps import abstract_steps
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict

STATES_MAX = 2_000
"""The number of states of a cluster, in breadth-first order, whose steps are collected. Some
presets have more states; no step to a further state is a new abstract step
(tests/test_abstract_steps.py)."""


class Known(NamedTuple):
    """An abstract step of the model: how many concrete steps it has in a cluster, and the events of
    a shortest run whose last step is one of them."""

    steps: int
    trace: tuple[Event, ...]


def known_steps(cluster: Cluster, states_max: int = STATES_MAX) -> dict[str, Known]:
    """The abstract steps of the model in a cluster, by name, in order of discovery."""
    traces: dict[str, tuple[Event, ...]] = {}
    seen: Counter[str] = Counter()
    reached = explored(cluster, (), Limits(states_max))[1]
    for number in range(reached.expanded):
        state = reached.state(number)
        for event in model.stimuli(cluster, state):
            step = model.apply(cluster, state, event)
            for name in abstract_steps(cluster, step):
                seen[name] += 1
                if name not in traces:
                    traces[name] = (*reached.trace(number), step.event)
    return {name: Known(seen[name], trace) for name, trace in traces.items()}


def random_steps(
    cluster: Cluster, make: Callable[[Cluster], Machine], seed: int, examples: int, steps: int
) -> tuple[Counter[str], Outcome]:
    """The abstract steps of random episodes on a machine, with the number of times each was
    taken."""
    seen: Counter[str] = Counter()

    def note(run: Run) -> None:
        for step in run.steps:
            seen.update(abstract_steps(run.machine.cluster, step))

    outcome = sample(cluster, make, seed=seed, examples=examples, steps=steps, ended=note)
    return seen, outcome


def directed_steps(
    cluster: Cluster, make: Callable[[Cluster], Machine], trace: Sequence[Event]
) -> Counter[str]:
    """The abstract steps of a machine that receives the stimuli of a run of the model, up to the
    first one that is not possible for it. Raises Violated if an invariant breaks during the run."""
    seen: Counter[str] = Counter()
    machine = make(cluster.carrying())
    run = Run(machine, CHECKS.values())
    run.add_jobs(cluster.jobs)
    try:
        for event in trace:
            if stimulus(event) not in run.stimuli:
                break
            run.take_one(stimulus(event))
            seen.update(abstract_steps(cluster, run.steps[-1]))
    finally:
        machine.close()
    return seen


class Exercised(Struct, frozen=True):
    """An abstract step, and the numbers of times that the model and the machine took it."""

    step: str
    model: int
    machine: int

    @property
    def missed(self) -> bool:
        """Whether the model has it and the machine never took it."""
        return bool(self.model) and not self.machine


def table(known: Counter[str], exercised: Counter[str]) -> list[Exercised]:
    """All abstract steps that the model or the machine took, in alphabetical order."""
    names = sorted({*known, *exercised})
    return [Exercised(n, known.get(n, 0), exercised.get(n, 0)) for n in names]


def verdict(rows: Iterable[Exercised], outcomes: Iterable[Outcome]) -> Verdict:
    """VIOLATED if an episode was VIOLATED; otherwise UNKNOWN if a step was not exercised; otherwise
    SAMPLED."""
    if any(outcome.verdict is Verdict.VIOLATED for outcome in outcomes):
        return Verdict.VIOLATED
    if any(outcome.verdict is Verdict.UNKNOWN for outcome in outcomes):
        return Verdict.UNKNOWN
    return Verdict.UNKNOWN if any(row.missed for row in rows) else Verdict.SAMPLED
