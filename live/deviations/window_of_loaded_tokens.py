"""vLLM computes the needed window from all tokens that D loads. D computes the last token again,
and this token reads one token further to the left."""

from kvproof.live.deviations.facts import seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The request has loaded its whole prompt and computes its last token again, without a Mamba
    group."""
    cfg = cluster.engine(about.engine)
    before = step.before.engine(about.engine).find(about.request)
    if before is None or not before.external or before.output or cfg.has_state:
        return False
    return before.computed >= len(before.tokens) - 1


DEVIATION = Deviation(
    name="window_of_loaded_tokens",
    says=(
        "the load omits the block before the window of the loaded tokens, and D's first "
        "token reads it"
    ),
    signatures=seen("null_block_is_nobody", "Schedule", on=("window",)),
    at_work=at_work,
)
