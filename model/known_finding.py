"""A known finding: where a vLLM is known to break a check, and how it is recognised."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding, Signature, signature
from kvproof.model.step import Step

Present = Callable[[Cluster, Step, About], bool]
Without = Callable[[Cluster], Cluster | None]
"""The same cluster without an ingredient of a cause; None where it has none of it."""


@dataclass(frozen=True)
class KnownFinding:
    """One known finding.

    `name` is the name of its folder in `findings/`, which has the trace. `says` is one sentence:
    what vLLM does. `scenario` tells how it comes about. `in_vllm` is the function of vLLM that does
    it; where it is empty, that of the fault of the same name. `signatures` has the signatures of
    the findings that it explains. `present` says whether its cause is present at a step, for the
    engine or request that a finding is about. It explains a finding only where the signature
    matches and the cause is present. Where a step does not show that, `needs` has the ingredients
    of the cause, without which it is tried whether this was at work.
    """

    name: str
    says: str
    signatures: frozenset[Signature]
    present: Present
    in_vllm: str = ""
    scenario: str = ""
    needs: tuple[Without, ...] = ()

    def explains(self, cluster: Cluster, step: Step, finding: Finding) -> bool:
        """Whether this known finding explains a finding at this step."""
        found = signature(cluster, step.event, finding)
        return found in self.signatures and self.present(cluster, step, finding.about)


def known_finding(
    says: str,
    signatures: frozenset[Signature],
    in_vllm: str = "",
    needs: tuple[Without, ...] = (),
) -> Callable[[Present], KnownFinding]:
    """Make a known finding of the function that says whether its cause is present. The name of the
    function is that of the finding, and its docstring tells how it comes about."""

    def made(present: Present) -> KnownFinding:
        scenario = present.__doc__ or ""
        name = present.__name__
        return KnownFinding(name, says, signatures, present, in_vllm, scenario, needs)

    return made


def explaining(
    known: Iterable[KnownFinding], cluster: Cluster, step: Step, finding: Finding
) -> Iterator[KnownFinding]:
    """The known findings that explain a finding at this step."""
    return (each for each in known if each.explains(cluster, step, finding))


def at_work(without: Sequence[Any], holds: Callable[[Any], bool]) -> bool:
    """Whether the cause of a known finding was at work in a run that breaks a check. `without` has
    the run without each ingredient of the cause; None where it has none of it. `holds` says whether
    the check has something to judge in such a run, and holds. What cannot be tried is not known to
    have been at work."""
    return bool(without) and all(run is not None and holds(run) for run in without)
