"""A store failed to load the KV of a step, and the next step was already dispatched. vLLM keeps the
token and the placeholder of the next step."""

from kvproof.live.deviations.facts import HANGS, failed_load, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A load failed in this event while a later step of its request was in flight. Or a request
    still has a placeholder from such a failure that no output will remove: it is never scheduled
    again, and others wait for its blocks."""
    if failed_load(step):
        return about.request == failed_load(step) and cluster.engine(about.engine).overlaps
    return step.after.failures > 0 and any(
        cluster.engine(engine.name).store
        and engine.placeholders(r.id) > 0
        and not engine.flights(r.id)
        and about.request in ("", r.id, *(each.id for each in engine.requests if not each.tables))
        for engine in step.after.engines
        for r in engine.requests
    )


DEVIATION = Deviation(
    name="poisoned_step_counts",
    says="after a failed load, the token of the next dispatched step is kept",
    signatures=(
        seen("no_token_of_a_failed_load", "Complete")
        | seen("placeholders_are_samples_in_flight", "Complete", "Submit", "Schedule")
        | seen("step_makes_progress", "Schedule")
        | HANGS
    ),
    at_work=at_work,
)
