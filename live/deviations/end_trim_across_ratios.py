"""If the blocks of P and D have different numbers of kernel blocks, vLLM trims the lists at the
front to equal length, although they do not end at the same token."""

from kvproof.live.deviations.facts import loaded, on_decode, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The finding is about blocks of D that were loaded from P's blocks of another width. Beside
    Mamba, vLLM pairs such lists from their fronts."""
    if not on_decode(cluster, about) or cluster.decode.has_state:
        return False
    unequal = cluster.prefill.physical_per_logical != cluster.decode.physical_per_logical
    return unequal and loaded(step, about)


DEVIATION = Deviation(
    name="end_trim_across_ratios",
    says=(
        "lists of unequal kernel blocks are paired from their ends, so D's blocks receive "
        "other tokens"
    ),
    signatures=(
        seen("paired_offsets_are_equal", "Schedule", on=("full", "window"))
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window"))
    ),
    at_work=at_work,
)
