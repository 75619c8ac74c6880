"""What head does more often than base, and what costs more: what the runs of a search suspect, and
fresh runs confirm. These take time, and so does what is still unseen. So what is hardly chance is
weighed as soon as it is, and the rest at the end.
"""

from collections.abc import Callable

from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.costs import Costs
from kvproof.gate.search.fresh import EARLY, LIKELY


class Weighing:
    """What is weighed in a comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self.costs = Costs(comparison)
        self._comparison = comparison

    @property
    def has_suspects(self) -> bool:
        """Whether something has to be seen again in fresh runs, which take time."""
        return bool(self._comparison.needs.likely() or self.costs.suspects)

    def early(self, go_on: Callable[[], bool]) -> None:
        """Weigh what has become hardly chance, as long as `go_on` says so. Raises Ended."""
        if go_on():
            self._comparison.weigh(go_on, level=LIKELY / EARLY)
            self.costs.weigh_early(go_on)

    def rest(self, go_on: Callable[[], bool], of_choices: Callable[[], bool]) -> bool:
        """Weigh the rest when the search has ended, as long as `go_on` says so, and choices only as
        long as `of_choices` does. Returns whether there was time for what costs more. Raises
        Ended."""
        self._comparison.weigh_needs(go_on, of_choices)
        if not go_on():
            return not self.costs.suspects
        self.costs.weigh(go_on)
        return True
