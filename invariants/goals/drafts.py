"""Drafts: some are accepted, some are rejected, and a drafter with layers shortens hits."""

from collections.abc import Iterator

from kvproof.invariants.goals.goal import Goal, on_some_engine
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Schedule
from kvproof.model.state import COUNTS
from kvproof.model.step import Step


def _verified(step: Step, event: Complete) -> Iterator[tuple[str, int]]:
    """For each request whose output is kept: the number of drafts that the step verified."""
    engine = step.before.engine(event.engine)
    for name, _ in engine.step or ():
        yield name, engine.request(name).drafts
    for flight in engine.steps[0] if engine.steps else ():
        if flight.fate == COUNTS:
            yield flight.request, flight.drafts


def _accepts(_cluster: Cluster, _step: Step, event: Complete) -> bool:
    return bool(event.accepted)


def _rejects(_cluster: Cluster, step: Step, event: Complete) -> bool:
    right = event.accepted
    return any(drafts > right.get(name, 0) for name, drafts in _verified(step, event))


def _hits(cluster: Cluster, step: Step, event: Schedule) -> bool:
    hits = any(admission.hit for admission in step.effects.admissions)
    return hits and cluster.engine(event.engine).eagle_drop_tokens > 0


_drafts = on_some_engine(lambda engine: engine.drafts)
_drafter = on_some_engine(lambda engine: engine.eagle_drop_tokens and engine.prefix_caching)

GOALS = (
    Goal(
        "draft_accepted",
        "a draft is accepted",
        *(Complete, _accepts, "ngram-drafts", "full", _drafts),
    ),
    Goal(
        "draft_rejected",
        "a draft is rejected",
        *(Complete, _rejects, "ngram-drafts", "full", _drafts),
    ),
    Goal(
        "hit_beside_drafter",
        "a prompt hits in a group with a drafter's layers, without the last matched block",
        *(Schedule, _hits, "drafts-aligned", "ngram-drafts", _drafter),
    ),
)
