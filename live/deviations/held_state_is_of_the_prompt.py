"""P loads D's state as the state of P's prompt. It is the state after D's answer. P computes the
last token of its prompt again, from a state before it: where that is of an earlier block, it was
never loaded."""

from kvproof.live.deviations.facts import concerned, loaded, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P loads a Mamba state from an earlier turn of D, or D loads what P has made of it."""
    states = any(group.kind == "mamba" for group in cluster.prefill.groups)
    if not (cluster.follow_up_turns and states and loaded(step, about)):
        return False
    later = any(cluster.job(each.id).follows for each in concerned(step, about))
    return later or on_prefill(cluster, about)


DEVIATION = Deviation(
    name="held_state_is_of_the_prompt",
    says="P continues from the state after D's answer as if it were the state of its own prompt",
    signatures=(
        seen("prefill_and_decode_agree", "Schedule")
        | seen("null_block_is_nobody", "Schedule", on=("mamba",))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
    ),
    at_work=at_work,
)
