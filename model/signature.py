"""The signature of a finding: the check that does not hold, the kind of event, and the kind of
cache group.

Two findings with the same signature may have different numbers and names but the same cause.
"""

from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.finding import Finding


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
