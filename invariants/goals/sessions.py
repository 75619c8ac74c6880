"""Sessions: jobs whose prompt arrives in several parts."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Continue, Preempt, Schedule
from kvproof.model.state import RUNNING
from kvproof.model.step import Step


def _goes_on(_cluster: Cluster, step: Step, event: Continue) -> bool:
    return step.after.engine(event.engine).find(event.request) is not None


def _gives_way(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.before.engine(event.engine)
    victims = (c.request for c in event.chose or () if isinstance(c, Preempt))
    return any(engine.request(name).status != RUNNING for name in victims)


def _sessions(cluster: Cluster) -> bool:
    return cluster.sessions


GOALS = (
    Goal(
        "session_continued",
        "the next part of a session's prompt arrives",
        *(Continue, _goes_on, "sessions", "full", _sessions),
    ),
    Goal(
        "session_gave_way",
        "a waiting session loses its blocks to another session",
        *(Schedule, _gives_way, "sessions", "window", _sessions),
    ),
)
