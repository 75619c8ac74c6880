"""Live vLLM with its known deviations, as tests drive it."""

from collections import Counter
from typing import Any

from kvproof.live.deviations.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.rules import Rules
from kvproof.strategies.conformance.watched import Watched


class Counting(Watched):
    """A watched machine that counts the steps it was judged by."""

    judged = 0

    def unexplained(self, *args: Any) -> Any:
        """Count the step, and leave out what is known."""
        self.judged += 1
        return super().unexplained(*args)


def watched(cluster: Cluster, without: str = "", policy: Counter[str] | None = None) -> "Counting":
    """Fresh live vLLM for a cluster. All known deviations are excused, `without` one of them."""
    from kvproof.live.machine import LiveMachine

    known = [each for name, each in KNOWN.items() if name != without]
    return Counting(LiveMachine(cluster), known, policy=policy)


def known_rules() -> Rules:
    """The rules of a model with the mistakes that vLLM is known for."""
    return rules_with(FAULTS[name] for name in KNOWN if name in FAULTS)
