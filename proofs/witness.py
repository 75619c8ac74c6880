"""Numbers that refute a claim, turned into a run of the model.

The numbers define a cluster template. The explorer searches the clusters that fit it, under the
refuted arithmetic, for a run that breaks an invariant. If no valid cluster fits, or if no run
breaks an invariant, the clusters of the nearest templates are searched. For a claim about counts,
the search prefers a run whose states break that claim too.
"""

import contextlib
import functools
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.counting_abstraction.relation import PROJECTIONS
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.planting import planted_now
from kvproof.proofs.cluster_template import ClusterTemplate, clusters, near
from kvproof.proofs.from_numbers import template_of
from kvproof.proofs.induction import Claimed, claimed
from kvproof.proofs.proof import Proof
from kvproof.proofs.walks import broken_claims
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Outcome, Verdict

TEMPLATES_MAX = 500
"""The maximum number of templates: the template of the numbers, and those nearest to it."""

STATES_MAX = 1_000
"""The maximum number of states searched in each cluster. Clusters of one or two small jobs have
few."""

PAIRED_COUNTS = "paired_lists_are_equal"
PAIRED_POSITIONS = "paired_offsets_are_equal"
MATCHING = {
    "trim_equal_counts": PAIRED_COUNTS,
    "trim_equal_positions": PAIRED_POSITIONS,
    "trim_covers_both": PAIRED_POSITIONS,
    "trim_equal_tokens": PAIRED_POSITIONS,
    "end_trim_is_right_where": PAIRED_POSITIONS,
    "lists_are_equally_long": PAIRED_COUNTS,
    "lists_start_together": PAIRED_POSITIONS,
}
"""The invariant on runs that corresponds to a claim about lists. A faulty trim can break either
invariant, not only the one that its fault names."""


@dataclass(frozen=True)
class WitnessResult:
    """The result of the search for a run.

    If a run was found, `events` lead to `finding` on `cluster`, and `changes` lists how the cluster
    differs from the numbers; `impossible` says why no cluster fits the numbers themselves, if so.
    Otherwise `reason` says why there is no run. `searched` is the number of clusters searched.
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
        """The run as the outcome of a search."""
        verdict = Verdict.UNKNOWN if self.finding is None else Verdict.VIOLATED
        coverage = {"clusters": self.searched}
        return Outcome(verdict, coverage, self.events, self.finding, self.reason, 0.0, self.cluster)


def witness(
    proof: Proof,
    faults: Sequence[Fault],
    beside: Sequence[Fault] = (),
    templates_max: int = TEMPLATES_MAX,
) -> WitnessResult:
    """The first run that breaks a matching invariant, in the order of distance from the numbers
    that refute a claim under these faults; or why there is none. The same proof gives the same
    run."""
    if proof.verdict is not Verdict.VIOLATED:
        return WitnessResult(reason=f"{proof.id} is {proof.verdict.value}, not VIOLATED")
    for visible in (True, False):
        found = next(witnesses(proof, faults, beside, templates_max, visible), None)
        if found is not None:
            return found
    first = _template(proof, faults)
    names = " or ".join(i.id for i in matching(proof, faults))
    where = f"the clusters of the {templates_max} templates nearest to the numbers"
    return WitnessResult(
        impossible=_impossible(first, proof.id), reason=f"no run breaks {names} in {where}"
    )


def witnesses(
    proof: Proof,
    faults: Sequence[Fault],
    beside: Sequence[Fault] = (),
    templates_max: int = TEMPLATES_MAX,
    visible: bool = True,
) -> Iterator[WitnessResult]:
    """Runs of the model with these faults that break a matching invariant, at most one for each
    cluster, in the order of distance from the numbers that refute a claim. The model has the faults
    `beside` too, because live vLLM has faults of its own. With `visible`, a state of the run must
    break a claim about counts; a claim that breaks only inside a step does not qualify."""
    together = _with(faults, beside)
    about = claimed().get(proof.id)
    breaks = matching(proof, faults)
    first = _template(proof, faults)
    impossible = _impossible(first, proof.id)
    searched: set[Cluster] = set()
    for template in _around(first, templates_max):
        for cluster in _possible(template, proof.id):
            if cluster in searched:
                continue
            searched.add(cluster)
            with planted(*together):
                found = _run(cluster, breaks, about if visible else None)
            if found is not None:
                run = (cluster, found.events, found.finding, template.changes(first))
                yield WitnessResult(*run, impossible, searched=len(searched))


def _template(proof: Proof, faults: Sequence[Fault]) -> ClusterTemplate:
    about = claimed().get(proof.id)
    with planted(*faults):
        numbers = _numbers(proof, about)
    return template_of(numbers, about.system if about else "")


def _possible(template: ClusterTemplate, name: str) -> Iterator[Cluster]:
    """The clusters that fit a template; none if it is impossible."""
    with contextlib.suppress(UsageError):
        yield from clusters(template, name)


def _impossible(template: ClusterTemplate, name: str) -> str:
    """Why no cluster fits a template; empty if one fits."""
    try:
        next(clusters(template, name))
    except UsageError as error:
        return str(error)
    return ""


def _with(faults: Sequence[Fault], beside: Sequence[Fault]) -> list[Fault]:
    """Both sets of faults; `faults` take precedence where both replace the same function."""
    replaced = {name for fault in faults for name in fault.replaces}
    return [*faults, *(f for f in beside if replaced.isdisjoint(f.replaces))]


def matching(proof: Proof, faults: Sequence[Fault]) -> list[Check]:
    """The invariants that a run should break: those that the faults name, and the invariant that
    corresponds to the claim."""
    names = [i for fault in faults for i in fault.breaks]
    claim = proof.id.rpartition(".")[2]
    names += [MATCHING[claim]] if claim in MATCHING else []
    return [INVARIANTS[i] for i in dict.fromkeys(names)]


def _numbers(proof: Proof, about: Claimed | None) -> dict[str, int]:
    """The numbers that refute the claim; if a walk broke it, the sizes and counts on the walk."""
    if proof.numbers or about is None:
        return proof.numbers
    walked = broken_claims(about.system)
    sizes, counts = walked[about.claim]
    return {**sizes._asdict(), **counts._asdict()}


def _around(first: ClusterTemplate, most: int) -> Iterator[ClusterTemplate]:
    """A template, and then the others in the order of distance from it, each once."""
    seen, waiting = {first}, deque([first])
    while waiting:
        template = waiting.popleft()
        yield template
        for other in near(template):
            if other not in seen and len(seen) < most:
                seen.add(other)
                waiting.append(other)


def _run(cluster: Cluster, breaks: Sequence[Check], about: Claimed | None) -> Outcome | None:
    """A run that breaks one of the invariants and, before that, the claim."""
    left = tuple(breaks)
    while left:
        mistakes = frozenset(planted_now().items())
        found = _search(replace(cluster, name="scope"), left, mistakes)
        if found.finding is None:
            return None
        if about is None or breaks_claim(cluster, found.events, about):
            return found
        left = tuple(i for i in left if i.id != found.finding.invariant)
    return None


@functools.lru_cache(maxsize=4096)
def _search(
    cluster: Cluster,
    breaks: tuple[Check, ...],
    mistakes: Hashable,  # noqa: ARG001 (cached outcomes depend on it)
) -> Outcome:
    """The outcome of the explorer. It is cached, because numbers that refute different claims lead
    to the same clusters."""
    return explore(cluster, breaks, STATES_MAX)


def breaks_claim(cluster: Cluster, events: Sequence[Event], about: Claimed) -> bool:
    """Whether the counts of some state of a run break a claim about them."""
    machine = ModelMachine(cluster)
    holds = systems()[about.system].invariants[about.claim]
    for event in events:
        step = machine.take(event)
        for project in PROJECTIONS:
            for seen in project(cluster, step):
                if seen.system == about.system and not holds(seen.sizes, seen.after):
                    return True
    return False
