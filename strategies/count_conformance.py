"""The tie between the proofs and what runs: every step, in counts, is one the proofs speak of.

It is asked like an invariant, but it is about the rules a machine follows: a faulty model must be a
model of the count-level systems with the same fault. Clusters with follow-up turns are passed over:
reverse transfers, and the tables and pools in such a cluster, are not tied to the proofs. So are
clusters that push, whose transfers may begin on D: the rules of pairing and of N-1 they use are
tied where D pulls.
"""

import functools
from collections.abc import Iterable

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.relation import PROJECTIONS, Projection, unmatched
from kvproof.model.reference.rules import Rules
from kvproof.model.step import Step

TIE = "step_is_one_of_the_proofs"
"""The id of the finding that a step is outside the relation the proofs are about."""


@functools.lru_cache(maxsize=16)
def ties(rules: Rules) -> tuple[Invariant, ...]:
    """The checks that a step under these rules is one of the count-level systems."""
    return tuple(_tie(project, rules) for project in PROJECTIONS)


def _tie(project: Projection, rules: Rules) -> Invariant:
    def check(cluster: Cluster, step: Step) -> Iterable[Because]:
        return (Because(reasons) for reasons in unmatched(project, cluster, rules, step))

    return Invariant(
        id=TIE,
        name="every step, in counts, is one of the relation that is proved for all sizes",
        origin="the proofs themselves",
        severity=None,
        check=check,
        killed_by="",
    )
