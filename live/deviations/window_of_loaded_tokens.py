"""A window is judged by all tokens that D loads, though D computes the last one again, which looks
back one token further."""

from kvproof.live.deviations.facts import choices, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.events import Adopt
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The request takes over a load of its whole prompt in this step, without a Mamba group."""
    cfg = cluster.engine(about.engine)
    taken_over = any(isinstance(c, Adopt) and c.request == about.request for c in choices(step))
    before = step.before.engine(about.engine).find(about.request)
    whole = before is not None and before.computed >= len(before.tokens)
    return taken_over and whole and not cfg.has_state


DEVIATION = Deviation(
    name="window_of_loaded_tokens",
    says=(
        "the block before the window of the loaded tokens is left out of the load, and D's "
        "first token reads it"
    ),
    signatures=seen("null_block_is_nobody", "Schedule", on=("window",)),
    at_work=at_work,
)
