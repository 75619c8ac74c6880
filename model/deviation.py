"""A known deviation: where a vLLM is known to deviate from the spec, and how it is recognised."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding
from kvproof.model.signature import Signature, signature
from kvproof.model.step import Step

AtWork = Callable[[Cluster, Step, About], bool]


@dataclass(frozen=True)
class Deviation:
    """One known deviation.

    `name` is the name of its folder in `findings/`, which has the trace. `says` is one sentence:
    what vLLM does. `in_vllm` is the function of vLLM that does it; where it is empty, that of the
    fault of the same name. `signatures` has the signatures of the findings that it explains.
    `at_work` says whether its cause is present at a step, for the engine or request that a finding
    is about. It explains a finding only where the signature matches and the cause is present.
    """

    name: str
    says: str
    signatures: frozenset[Signature]
    at_work: AtWork
    in_vllm: str = ""

    def explains(self, cluster: Cluster, step: Step, finding: Finding) -> bool:
        """Whether this deviation explains a finding at this step."""
        found = signature(cluster, step.event, finding)
        return found in self.signatures and self.at_work(cluster, step, finding.about)


def explaining(
    known: Iterable[Deviation], cluster: Cluster, step: Step, finding: Finding
) -> Iterator[Deviation]:
    """Those of the known deviations that explain a finding at this step."""
    return (each for each in known if each.explains(cluster, step, finding))
