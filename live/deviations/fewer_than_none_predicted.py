"""After rejected drafts a request holds more state blocks than it needs, and vLLM adds the negative
difference to the prediction."""

from kvproof.live.deviations.facts import allocation, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The engine has drafts and Mamba groups, and the prediction is lower than the allocation."""
    cfg, taken = cluster.engine(about.engine), allocation(step, about)
    states = sum(group.aligned for group in cfg.groups)
    beside = cfg.drafts > 0 and states > 0
    return beside and taken is not None and 0 < taken.taken - taken.predicted <= states


DEVIATION = Deviation(
    name="fewer_than_none_predicted",
    says="the prediction of a Mamba group is negative after rejected drafts",
    signatures=seen("predicted_is_taken", "Schedule"),
    at_work=at_work,
)
