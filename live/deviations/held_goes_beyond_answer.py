"""D counts tokens that it computed after the end of its answer as tokens that it keeps for the next
turn."""

from kvproof.live.deviations.facts import GROUPS, loaded, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P loads from a D that computes ahead: with a drafter or with overlapping steps."""
    ahead = cluster.decode.drafts > 0 or cluster.decode.overlaps
    return cluster.follow_up_turns and ahead and on_prefill(cluster, about) and loaded(step, about)


DEVIATION = Deviation(
    name="held_goes_beyond_answer",
    says="D offers tokens after the end of its answer for the next turn",
    signatures=(
        seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=GROUPS)
        | seen("prefill_and_decode_agree", "Schedule")
    ),
    at_work=at_work,
)
