"""Numbers that refute a claim, turned into a run of the model.

The numbers are made a cluster, and the cluster is searched, under the rules that were refuted, for
a run that breaks an invariant. Where the numbers are no cluster of vLLM's, or one in which nothing
happens, the clusters nearest to them are searched. A run found for a claim about counts breaks that
claim too, read off its states.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvproof.invariants.invariant import Finding, Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.machine import ModelMachine
from kvproof.model.rules import Rules
from kvproof.model.tally.registry import relevant, systems
from kvproof.model.tally.relation import PROJECTIONS
from kvproof.strategies.explorer import explore
from kvproof.strategies.symbolic.from_numbers import sketched
from kvproof.strategies.symbolic.induction import Claimed, claimed
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.symbolic.sketch import Sketch, clusters, near
from kvproof.strategies.symbolic.walks import broken_claims
from kvproof.strategies.verdict import Outcome, Verdict

SKETCHES_MAX = 300
"""Sketches looked at: the one of the numbers, and those nearest to it."""

STATES_MAX = 2_000
"""States searched of each cluster. Clusters of one or two small jobs have few."""


@dataclass(frozen=True)
class Witness:
    """What became of the search for a run.

    Where there is one, `events` lead to `finding` on `cluster`, and `changes` says how the cluster
    differs from the numbers; `impossible` why they are none themselves, where that is so. Otherwise
    `reason` says why there is none. `searched` counts clusters.
    """

    cluster: Cluster | None = None
    events: tuple[Event, ...] = ()
    finding: Finding | None = None
    changes: tuple[str, ...] = ()
    impossible: str = ""
    reason: str = ""
    searched: int = 0

    @property
    def outcome(self) -> Outcome:
        """The run as what a search has found."""
        verdict = Verdict.UNKNOWN if self.finding is None else Verdict.VIOLATED
        coverage = {"clusters": self.searched}
        return Outcome(verdict, coverage, self.events, self.finding, self.reason, 0.0, self.cluster)


def witness(proof: Proof, faults: Sequence[Fault], sketches_max: int = SKETCHES_MAX) -> Witness:
    """A run of the model with these faults, near the numbers that refute a claim under them, that
    breaks an invariant the faults are said to break. The same proof gives the same run."""
    if proof.verdict is not Verdict.VIOLATED:
        return Witness(reason=f"{proof.id} is {proof.verdict.value}, not VIOLATED")
    rules = rules_with(faults)
    about = claimed().get(proof.id)
    breaks = [INVARIANTS[i] for i in dict.fromkeys(i for f in faults for i in f.breaks)]
    told = sketched(_numbers(proof, about, rules), about.system if about else "")
    searched, impossible = 0, ""
    for sketch in _around(told, sketches_max):
        fitting = clusters(sketch, proof.id)
        try:
            for cluster in fitting:
                searched += 1
                found = _run(cluster, rules, breaks, about)
                if found is not None:
                    changes = sketch.changes(told)
                    run = (cluster, found.events, found.finding)
                    return Witness(*run, changes, impossible, searched=searched)
        except UsageError as error:
            if sketch == told:
                impossible = str(error)
    names = " or ".join(i.id for i in breaks)
    reason = f"no run breaks {names} in {searched} clusters near the numbers"
    return Witness(impossible=impossible, reason=reason, searched=searched)


def _numbers(proof: Proof, about: Claimed | None, rules: Rules) -> dict[str, int]:
    """The numbers that refute it; of a claim that a walk broke, the sizes and counts there."""
    if proof.numbers or about is None:
        return proof.numbers
    walked = broken_claims(about.system, relevant(about.system, rules))
    sizes, counts = walked[about.claim]
    return {**sizes._asdict(), **counts._asdict()}


def _around(told: Sketch, most: int) -> Iterator[Sketch]:
    """A sketch, and then those ever further from it, each once."""
    seen, waiting = {told}, deque([told])
    while waiting:
        sketch = waiting.popleft()
        yield sketch
        for other in near(sketch):
            if other not in seen and len(seen) < most:
                seen.add(other)
                waiting.append(other)


def _run(
    cluster: Cluster, rules: Rules, breaks: Sequence[Invariant], about: Claimed | None
) -> Outcome | None:
    """A run that breaks one of the invariants, and the claim on the way."""
    for invariant in breaks:
        found = explore(cluster, rules, [invariant], STATES_MAX)
        if found.verdict is not Verdict.VIOLATED:
            continue
        if about is None or breaks_claim(cluster, rules, found.events, about):
            return found
    return None


def breaks_claim(
    cluster: Cluster, rules: Rules, events: Sequence[Event], about: Claimed
) -> bool:
    """Whether the counts read off the states of a run break a claim about them."""
    machine = ModelMachine(cluster, rules)
    holds = systems(rules)[about.system].invariants[about.claim]
    for event in events:
        step = machine.take(event)
        for project in PROJECTIONS:
            for seen in project(cluster, rules, step):
                if seen.system == about.system and not holds(seen.sizes, seen.after):
                    return True
    return False
