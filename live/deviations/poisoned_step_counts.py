"""A store could not bring what a step loaded, and the step behind it was dispatched already: its
token is kept, and its placeholder stays."""

from kvproof.live.deviations.facts import HANGS, failed_load, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A load has failed with this event while a later step of its request was in flight, or after
    such a failure a request is left with a placeholder that nothing will take."""
    if failed_load(step):
        return about.request == failed_load(step) and cluster.engine(about.engine).overlaps
    return step.after.failures > 0 and any(
        cluster.engine(engine.name).store
        and engine.placeholders(r.id) > 0
        and not engine.flights(r.id)
        and about.request in ("", r.id)
        for engine in step.after.engines
        for r in engine.requests
    )


DEVIATION = Deviation(
    name="poisoned_step_counts",
    says="after a failed load the token of the step dispatched behind it is kept",
    signatures=(
        seen("no_token_of_a_failed_load", "Complete")
        | seen("placeholders_are_samples_in_flight", "Complete", "Submit", "Schedule")
        | seen("step_makes_progress", "Schedule")
        | HANGS
    ),
    at_work=at_work,
)
