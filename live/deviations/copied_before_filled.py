"""vLLM makes the copies of a step before the step computes. A block that this step fills is copied
with its old content."""

from kvproof.live.deviations.facts import GROUPS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """The block is the target of a copy in this step."""
    return any(c.engine == about.engine and c.target == about.block for c in step.effects.copies)


DEVIATION = Deviation(
    name="copied_before_filled",
    says="a hit copies a block before the same step fills it",
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", on=GROUPS)
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
    ),
    at_work=at_work,
)
