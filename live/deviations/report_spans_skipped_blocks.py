"""A KV event carries the tokens of all blocks between the first and the last, and the hashes of the
cached blocks only."""

from kvproof.live.deviations.facts import seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.kv_events import Stored
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A group that does not cache every block reports more tokens than its named blocks have, or
    blocks after a block that is not cached."""
    index = about.group or 0
    size = cluster.engine(about.engine).groups[index].block_size
    cached = {*step.before.engine(about.engine).cached, *step.after.engine(about.engine).cached}
    keys = {key for key, _ in cached}
    return any(
        report.group == index
        and (
            len(report.tokens) > len(report.prefixes) * size
            or (report.parent and (index, report.parent) not in keys)
        )
        for report in step.effects.reports
        if isinstance(report, Stored)
    )


DEVIATION = Deviation(
    name="report_spans_skipped_blocks",
    says="a KV event carries the tokens of blocks that it does not name",
    signatures=seen("events_carry_their_tokens", "Schedule", "Complete", on=("window", "mamba")),
    at_work=at_work,
)
