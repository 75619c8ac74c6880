"""Conformance to the proofs: a step, projected to counts, is a transition of a proved system.

The check is in no registry: it is asked of the reference only. A fault is planted in
the reference and in the systems alike: the reference with a fault must conform to the count-level
systems with the same fault. Not every step of every cluster is projected: `relation.left_out` and
`project_table.left_out` say which are not and why, and reports/obligations.md lists the presets.
"""

import functools
from collections.abc import Iterable

from kvproof.invariants.check import Check
from kvproof.model.because import Judged
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.relation import PROJECTIONS, Projection, unmatched
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step

CONFORMANCE = "step_is_one_of_the_proofs"
"""The id of the finding that a step is not a transition of a proved system."""


@functools.lru_cache(maxsize=16)
def conformance_checks() -> tuple[Check, ...]:
    """The checks that a step is a transition of a count-level system."""
    return tuple(_check(project) for project in PROJECTIONS)


def _check(project: Projection) -> Check:
    def conforms(step: Step, cluster: Cluster) -> Iterable[Judged]:
        return map(Judged, unmatched(cluster, step, project))

    return Check(
        id=CONFORMANCE,
        name="every step, projected to counts, is a transition of the system proved for all sizes",
        origin="the proofs themselves",
        severity=Severity.WRONG_TOKENS,  # no search for graver checks leaves it out
        function=conforms,
        judged=(Step,),
        given=("cluster",),
        needs=(Need.STATE,),
    )
