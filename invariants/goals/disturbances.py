"""What comes from outside: aborts, and cache entries that are dropped."""

from kvproof.invariants.goals.goal import Goal, happens
from kvproof.model.config import Cluster
from kvproof.model.events import Abort, Evict
from kvproof.model.state import RUNNING
from kvproof.model.step import Step


def _running(_cluster: Cluster, step: Step, event: Abort) -> bool:
    request = step.before.engine(event.engine).find(event.request)
    return request is not None and request.status == RUNNING


GOALS = (
    Goal(
        "aborted_run",
        "a request is aborted while it runs",
        *(Abort, _running, "oversized", "full", lambda cluster: cluster.aborts),
    ),
    Goal(
        "dropped_entry",
        "the cache entry of a free block is dropped",
        *(Evict, happens, "hybrid-evicting", "hybrid", lambda cluster: cluster.evictions),
    ),
)
