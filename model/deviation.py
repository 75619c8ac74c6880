"""A known deviation: where a vLLM is known to leave the spec, and how that is recognised."""

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.signature import Signature
from kvproof.model.step import Step

AtWork = Callable[[Cluster, Step, About], bool]


@dataclass(frozen=True)
class Deviation:
    """One known deviation.

    `name` is that of its finding, which has the trace. `says` tells in one sentence what vLLM does.
    `signatures` are those of the findings that tell of it. `at_work` says whether its cause is
    there: whether what a finding is about is, at this step, in the circumstances that the deviation
    needs. A finding is explained only where both fit.
    """

    name: str
    says: str
    signatures: frozenset[Signature]
    at_work: AtWork

    def explains(self, cluster: Cluster, step: Step, found: Signature, about: About) -> bool:
        """Whether a finding with this signature tells of this deviation."""
        return found in self.signatures and self.at_work(cluster, step, about)
