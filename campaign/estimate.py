"""How much a campaign has not seen yet, estimated from its fresh units alone.

A fresh unit is a random sample of clusters and episodes, nearly independent of the others; a unit
that changes kept runs is none. For what plans show, each unit of plans is one. f1 and f2 are the
numbers of behaviours that exactly one and exactly two of m fresh units showed.

- Good and Turing: the next fresh unit shows about f1 / m behaviours that no earlier one showed.
- Chao (Chao2): at least (m - 1) / m * f1^2 / (2 f2) behaviours can be seen by fresh units and were
  not seen.

Neither says anything about what no fresh unit can show: larger pools, features that kvproof does
not drive, or an order of events that the environment does not have.
"""

from kvproof.campaign.behaviours import PLAN, kind
from kvproof.campaign.progress import Progress
from kvproof.reports.output.campaign import EstimatedUnseen


def unseen(progress: Progress, what: str) -> EstimatedUnseen:
    """The estimate for behaviours of this kind."""
    counts = [seen.fresh for name, seen in progress.seen.items() if kind(name) == what]
    once, twice = counts.count(1), counts.count(2)
    units = max(progress.plan_units if what == PLAN else progress.fresh_units, 1)
    chao = once * once / (2 * twice) if twice else once * (once - 1) / 2
    left = (units - 1) / units * chao
    never = counts.count(0)
    return EstimatedUnseen(
        seen=len(counts) - never,
        by_changed_runs=never,
        in_next_unit=round(once / units, 3),
        unseen_at_least=round(left, 1),
    )
