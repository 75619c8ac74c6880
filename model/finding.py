"""A finding: a check that does not hold, and why. Two findings with the same signature may have
different numbers and names but the same cause."""

from dataclasses import dataclass
from typing import NamedTuple

from kvproof.model import wording
from kvproof.model.because import NOTHING, About, Excuse, Reasons
from kvproof.model.config import Cluster
from kvproof.model.events import Event


@dataclass(frozen=True)
class Finding:
    """A check that does not hold, with its reasons.

    `invariant` is the id of an invariant or a guard. `about` is what the finding is about. With
    `excuses` it is no violation by itself: only a pair of vLLMs judges it. Two findings are equal
    if the same check fails for the same facts about the same things, in whatever words.
    """

    invariant: str
    reasons: Reasons
    about: About = NOTHING
    excuses: tuple[Excuse, ...] = ()

    def of_kind(self, kind: str) -> Reasons:
        """The reasons of this kind."""
        return tuple(each for each in self.reasons if each.kind == kind)

    @property
    def shape(self) -> str:
        """Which facts contradict each other, without their numbers and names."""
        return ", ".join(each.shape for each in self.reasons)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The reasons in words."""
        return wording.sentences(self.reasons, self.about)

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return wording.sentence(self.reasons, self.about)


class Signature(NamedTuple):
    """`check` is the id of a guard or an invariant. `event` is the kind of event after which the
    check fails. `feature` is the kind of cache group that the finding is about (`full`, `window`,
    `mamba`), or empty."""

    check: str
    event: str
    feature: str = ""

    @property
    def words(self) -> str:
        """The signature in one line."""
        return f"{self.check} after {self.event}" + (f" ({self.feature})" if self.feature else "")


def signature(cluster: Cluster, event: Event, finding: Finding) -> Signature:
    """The signature of a finding after this event."""
    about = finding.about
    groups = cluster.engine(about.engine).groups if about.engine else ()
    known = about.group is not None and 0 <= about.group < len(groups)
    kind = groups[about.group or 0].kind if known else ""
    return Signature(finding.invariant, type(event).__name__, kind)
