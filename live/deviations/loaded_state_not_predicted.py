"""A store loads a Mamba state within the step, and the prediction does not include its block."""

from kvproof.live.deviations.facts import admission, after, allocation, choices, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.events import Admit
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A store loads tokens and states in this step. The prediction is one block too low, or the
    engine dies when it allocates this block."""
    cfg = cluster.engine(about.engine)
    if not cfg.store or not cfg.has_state:
        return False
    taken = allocation(step, about)
    if taken is not None:
        admitted = admission(step, about)
        states = sum(group.aligned for group in cfg.groups)
        brings = admitted is not None and admitted.external > 0
        return brings and 0 < taken.taken - taken.predicted <= states
    brings = any(isinstance(c, Admit) and c.external > 0 for c in choices(step))
    dead = after(step, about).dead
    return brings and dead is not None and dead.function == "get_new_blocks"


DEVIATION = Deviation(
    name="loaded_state_not_predicted",
    says=(
        "the prediction does not include the block for a state that a store loads; at an "
        "exact fit the engine dies"
    ),
    signatures=seen("predicted_is_taken", "Schedule") | seen("engine_survives", "Schedule"),
    at_work=at_work,
)
