"""A machine with known deviations from the spec, checked for all other findings.

Every step is checked against the guards and the invariants (see `run`). A finding that a known
deviation explains is counted, and the run continues from the observed state. The same applies to a
finding that was explained at an earlier step and still holds. Any other finding is new.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from kvproof.model.because import About
from kvproof.model.deviation import Deviation
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.signature import signature
from kvproof.model.step import Step
from kvproof.strategies.conformance.around import Around
from kvproof.strategies.conformance.policy import differs
from kvproof.strategies.conformance.resync import believed


class Watched(Around):
    """A machine together with its known deviations; it is a `Machine` too.

    `met` counts, by deviation, the findings it explains. `policy` counts, by kind of difference,
    the steps in which the machine chose differently from the reference.
    """

    def __init__(
        self,
        machine: Machine,
        known: Iterable[Deviation] = (),
        met: Counter[str] | None = None,
        policy: Counter[str] | None = None,
    ) -> None:
        super().__init__(machine)
        self.known = tuple(known)
        self.met: Counter[str] = Counter() if met is None else met
        self.policy = policy
        self.standing: dict[tuple[str, About], str] = {}
        self.last: Step | None = None

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = super().take(event)
        if self.policy is not None:
            self.policy.update(differs(self.cluster, step))
        return step

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:
        """The findings after a step that no known deviation explains. If all are explained, the
        machine continues from the observed state."""
        # The end of a run is judged after its last step: findings that were explained there stay
        # explained.
        stand = dict(self.standing) if step is self.last else {}
        self.last = step
        new = []
        for finding in findings:
            what = finding.invariant, finding.about
            by = self._explained_by(step, finding) or self.standing.get(what)
            if by is None:
                new.append(finding)
                continue
            self.met[by] += what not in self.standing
            stand[what] = by
        self.standing = stand
        if findings and not new:
            self.machine.believe(believed(self.cluster, step))
        return new

    def _explained_by(self, step: Step, finding: Finding) -> str | None:
        found = signature(self.cluster, step.event, finding.invariant, finding.about)
        for deviation in self.known:
            if deviation.explains(self.cluster, step, found, finding.about):
                return deviation.name
        return None
