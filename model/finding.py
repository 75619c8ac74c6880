"""A finding: a check that does not hold, and why."""

from dataclasses import dataclass

from kvproof.model import wording
from kvproof.model.because import NOTHING, About, Excuse, Reasons


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
