"""A finding: a check that does not hold, and why."""

from dataclasses import dataclass, field

from kvproof.model import wording
from kvproof.model.because import About, Reasons


@dataclass(frozen=True)
class Finding:
    """A check that does not hold, with its reasons.

    `invariant` is the id of an invariant or a guard. `about` names the same things as data. Two
    findings are equal if the invariant and the reasons are equal.
    """

    invariant: str
    reasons: Reasons
    about: About = field(default=About(), compare=False)

    def of_kind(self, kind: str) -> Reasons:
        """The reasons of this kind. Those of older traces have no kind."""
        return tuple(each for each in self.reasons if each.kind == kind)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The reasons in words."""
        return wording.sentences(self.reasons, self.about)

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return wording.sentence(self.reasons, self.about)
