"""A finding: a check that does not hold, and why."""

from dataclasses import dataclass, field

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

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return ", yet ".join(("; ".join(self.reasons[:-1]) or "so", self.reasons[-1]))
