"""An external store of an engine."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Schedule
from kvproof.model.step import Step


def _brings(cluster: Cluster, step: Step, event: Schedule) -> bool:
    loads = any(admission.external for admission in step.effects.admissions)
    return loads and cluster.engine(event.engine).store


def _fails(_cluster: Cluster, _step: Step, event: Complete) -> bool:
    return bool(event.failed)


_store = on_some_engine(lambda engine: engine.store)

GOALS = (
    Goal(
        "loaded_from_store",
        "a store loads tokens that the cache has lost",
        *(Schedule, _brings, "store", "full", _store),
    ),
    Goal(
        "store_load_failed",
        "a store fails to load what a step needs",
        *(Complete, _fails, "store-failing", "store"),
        possible=lambda cluster: _store(cluster) and cluster.failures > 0,
    ),
)
