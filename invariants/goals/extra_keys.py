"""Requests with a salt or a LoRA adapter."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _admits(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(cluster.job(a.request).extra_key for a in step.effects.admissions)


GOALS = (
    Goal(
        "extra_key_admitted",
        "a request with a salt or an adapter is admitted",
        *(Schedule, _admits, "extra-keys", "full"),
        possible=lambda cluster: any(job.extra_key for job in cluster.jobs),
    ),
)
