"""What became of one obligation."""

from dataclasses import dataclass, field

from kvproof.model.because import Reasons, reason
from kvproof.model.finding import Finding
from kvproof.model.wording import literal
from kvproof.proofs.cti import Counterexample
from kvproof.strategies.verdict import Verdict


@dataclass(frozen=True)
class Proof:
    """What became of one obligation.

    `id` and `name` are the obligation's. If the verdict is VIOLATED, `numbers` are values of all
    variables that break the obligation. `reason` says why it is UNKNOWN. `cases` counts the queries
    to Z3 (in an induction, one for each action and one for the start), and `slowest_s` is the CPU
    time of the slowest one. `counterexample` is the step that refutes an induction.
    """

    id: str
    name: str
    verdict: Verdict
    numbers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    method: str = "arithmetic"
    cases: int = 1
    slowest_s: float = 0.0
    counterexample: Counterexample | None = None

    @property
    def finding(self) -> Finding | None:
        """The violation as a finding: the numbers, and the obligation that they break. None if
        there is no violation."""
        if self.verdict is not Verdict.VIOLATED:
            return None
        numbers: Reasons = tuple(
            reason("number", "{name} = {value}", name=name, value=value)
            for name, value in self.numbers.items()
        )
        if self.counterexample is not None:
            numbers = self.counterexample.reasons
        must = reason("must_be_true", literal(f"this must be true: {self.name}"))
        return Finding(self.id, (*numbers, must))
