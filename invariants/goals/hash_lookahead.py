"""Hashes that cover the token after their block (0.33.0's default beside an EAGLE drafter)."""

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.step import Step


def _hits(cluster: Cluster, step: Step, event: Schedule) -> bool:
    covers = cluster.engine(event.engine).hash_lookahead_tokens > 0
    return covers and any(admission.hit for admission in step.effects.admissions)


GOALS = (
    Goal(
        "hit_under_hash_lookahead",
        "a prompt hits where a hash covers the next token too",
        *(Schedule, _hits, "lookahead-hashes", "drafts"),
        possible=on_some_engine(lambda e: e.hash_lookahead_tokens and e.prefix_caching),
    ),
)
