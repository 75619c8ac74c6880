"""After a load, `num_cached_block` starts at the length of the table, null blocks included."""

from kvproof.live.deviations.facts import request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import NULL
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """A load has left null blocks at the start of the table, and the counter is not above their
    number."""
    known = request(step, about)
    if known is None or about.group is None or not known.external or not known.tables:
        return False
    table = known.tables[about.group]
    nulls = next((n for n, block in enumerate(table) if block != NULL), len(table))
    return 0 < known.num_cached_blocks[about.group] <= nulls


DEVIATION = Deviation(
    name="null_blocks_counted_as_cached",
    says="null blocks before the loaded tokens are counted as cached",
    signatures=seen(
        "counter_counts_only_cached",
        "Schedule",
        "LeaseExpire",
        "TransferFail",
        on=("window", "mamba"),
    ),
    at_work=at_work,
)
