"""A cached state that lies before the state to be loaded is counted among the blocks to be
taken."""

from kvproof.live.deviations.facts import admission, allocation, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A load beside a state that is cached before its end, and one block is predicted too many."""
    cfg = cluster.engine(about.engine)
    admitted, taken = admission(step, about), allocation(step, about)
    if admitted is None or taken is None or not admitted.external or not cfg.connected:
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
    says="one block too many is predicted where a load brings a later state than the cached one",
    signatures=seen("predicted_is_taken", "Schedule"),
    at_work=at_work,
)
