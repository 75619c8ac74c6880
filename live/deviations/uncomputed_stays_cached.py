"""With priority scheduling, a request may be preempted in the step that scheduled it. Its blocks
were cached when it was scheduled, and stay cached."""

from kvproof.live.deviations.facts import GROUPS, choices, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.events import Compute, Preempt
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """A request that was scheduled and preempted in this step freed the block, or the block is a
    copy of such a block."""
    scheduled, blocks = set[str](), set[int | None]()
    for choice in choices(step):
        if isinstance(choice, Compute):
            scheduled.add(choice.request)
        if isinstance(choice, Preempt) and choice.request in scheduled:
            blocks |= {block for freed in choice.freed for block in freed}
    blocks |= {c.target for c in step.effects.copies if c.source in blocks}
    return about.block in blocks


DEVIATION = Deviation(
    name="uncomputed_stays_cached",
    says=(
        "a block stays in the cache although the request that was to compute it is preempted "
        "in this step"
    ),
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", on=GROUPS)
        | seen("request_reads_its_own_prefix", "Schedule", on=GROUPS)
        | seen("state_read_is_state_at_computed", "Schedule", on=GROUPS)
    ),
    at_work=at_work,
)
