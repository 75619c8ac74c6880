"""After rejected drafts a request holds more state blocks than it needs, and the difference is
counted as blocks to be taken."""

from kvproof.live.deviations.facts import allocation, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Drafts beside states, and fewer blocks are predicted than are taken."""
    cfg, taken = cluster.engine(about.engine), allocation(step, about)
    states = sum(group.aligned for group in cfg.groups)
    beside = cfg.drafts > 0 and states > 0
    return beside and taken is not None and 0 < taken.taken - taken.predicted <= states


DEVIATION = Deviation(
    name="fewer_than_none_predicted",
    says="a Mamba group predicts less than no block after rejected drafts",
    signatures=seen("predicted_is_taken", "Schedule"),
    at_work=at_work,
)
