"""vLLM reports a key as removed when one of its blocks is evicted, although another block still
serves hits."""

from kvproof.live.deviations.facts import GROUPS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.kv_events import Removed, Stored
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """A key was reported as removed, or had more blocks before, and one block is still cached under
    it. In the same step, blocks after this key may be reported as stored."""
    before, after = step.before.engine(about.engine), step.after.engine(about.engine)
    removed = {(r.group, r.prefix) for r in step.effects.reports if isinstance(r, Removed)}
    stored = {(r.group, r.parent) for r in step.effects.reports if isinstance(r, Stored)}
    if not about.prefix:
        return any(after.blocks_for(key) or before.blocks_for(key) for key in removed & stored)
    key = about.group or 0, about.prefix
    copies = len(after.blocks_for(key))
    return copies > 0 and (key in removed or len(before.blocks_for(key)) > copies)


DEVIATION = Deviation(
    name="removal_of_one_copy_reported",
    says="a KV event reports a prefix as removed while another block is cached under it",
    signatures=(
        seen("events_replay_to_the_cache", "Schedule", "Complete", "Evict", on=GROUPS)
        | seen("events_carry_their_tokens", "Schedule", "Complete", on=GROUPS)
    ),
    at_work=at_work,
)
