"""A finding: the check that does not hold, and why."""

from dataclasses import dataclass, field

from kvproof.model.because import About, Reasons


@dataclass(frozen=True)
class Finding:
    """A check that does not hold, and why. `invariant` is the id of an invariant or of a guard. Two
    findings are equal where these and their reasons are equal; `about` repeats parts of the reasons
    as data."""

    invariant: str
    reasons: Reasons
    about: About = field(default=About(), compare=False)

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return ", yet ".join(("; ".join(self.reasons[:-1]) or "so", self.reasons[-1]))
