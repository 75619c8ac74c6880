"""A removal is told when one of the blocks under a hash is given out, though another still serves
hits."""

from kvproof.live.deviations.facts import GROUPS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.reports import Stored
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """Two blocks or more were cached under the key, and fewer are now."""
    key = about.group or 0, about.prefix
    engines = step.before.engine(about.engine), step.after.engine(about.engine)
    were, are = (len(engine.blocks_for(key)) for engine in engines)
    in_step = any(
        key[1] in report.prefixes for report in step.effects.reports if isinstance(report, Stored)
    )
    return are > 0 and (were > are or in_step)


DEVIATION = Deviation(
    name="removal_of_one_copy_told",
    says="a KV event tells that a prefix is gone while another block is cached under it",
    signatures=seen("events_replay_to_the_cache", "Schedule", "Complete", "Evict", on=GROUPS),
    at_work=at_work,
)
