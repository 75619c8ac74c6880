"""If a block of D has more kernel blocks than a block of P, padding makes D's list longer than P's
list. D's worker asserts that it is not longer."""

from kvproof.live.deviations.facts import after, on_decode, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """D has wider blocks and no Mamba group, and an assertion stopped it when it began to load."""
    wider = cluster.prefill.physical_per_logical < cluster.decode.physical_per_logical
    dead = after(step, about).dead
    died = dead is not None and dead.exception == "AssertionError"
    return on_decode(cluster, about) and wider and died and not cluster.decode.has_state


DEVIATION = Deviation(
    name="longer_list_dies_across_ratios",
    says="D dies on an assertion if its list of kernel blocks is longer than P's list",
    signatures=seen("engine_survives", "Schedule"),
    at_work=at_work,
)
