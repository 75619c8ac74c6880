"""Prompts that are sent as embeddings."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _admits(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(cluster.job(a.request).embeds for a in step.effects.admissions)


GOALS = (
    Goal(
        "embeddings_admitted",
        "a prompt of embeddings is admitted",
        *(Schedule, _admits, "pd-embeds", "pd-full"),
        possible=lambda cluster: any(job.embeds for job in cluster.jobs),
    ),
)
