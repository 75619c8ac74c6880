"""The prediction includes a cached state before the state that will be loaded."""

from kvproof.live.deviations.facts import admission, allocation, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A load has a cached state before its end, and the prediction is one block too high."""
    cfg = cluster.engine(about.engine)
    admitted, taken = admission(step, about), allocation(step, about)
    if admitted is None or taken is None or not admitted.external or not cfg.has_connector:
        return False
    end = admitted.hit + admitted.external
    states = [i for i, group in enumerate(cfg.groups) if group.aligned]
    cached = [
        key
        for key, blocks in admitted.cached
        if key[0] in states and blocks and len(key[1]) < end and admitted.tokens.startswith(key[1])
    ]
    return bool(cached) and 0 < taken.predicted - taken.taken <= len(states)


DEVIATION = Deviation(
    name="superseded_state_reserved",
    says="the prediction is one block too high if a load replaces a cached state",
    signatures=seen("predicted_is_taken", "Schedule"),
    at_work=at_work,
)
