"""If the blocks of P and D have different numbers of kernel blocks, vLLM trims the lists at the
front to equal length, although they do not end at the same token. Beside Mamba it pairs them from
their fronts, although D's list begins later where its window does (as a comment in
`_apply_prefix_caching` says): at the null block, if P's window has let that block go too."""

from kvproof.live.deviations.facts import holders, loaded, on_decode, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import NULL
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The finding is about blocks of D that were loaded from P's blocks of another width; beside
    Mamba, of a window that has let the beginning of the prompt go."""
    if not on_decode(cluster, about):
        return False
    unequal = cluster.prefill.physical_per_logical != cluster.decode.physical_per_logical
    later = not cluster.decode.has_state or _begins_later(cluster, step, about)
    return unequal and later and loaded(step, about)


def _begins_later(cluster: Cluster, step: Step, about: About) -> bool:
    """Whether the finding may be about a window, and the table of the request, or of a request that
    holds the block, has no block at its beginning there."""
    groups = cluster.decode.groups
    indices = range(len(groups)) if about.group is None else [about.group]
    windows = [index for index in indices if groups[index].kind == "window"]
    known = request(step, about)
    concerned = [known] if known is not None else holders(step, about)
    return any(r.tables and r.tables[i][:1] == (NULL,) for r in concerned for i in windows)


DEVIATION = Deviation(
    name="end_trim_across_ratios",
    says=(
        "lists of unequal kernel blocks are paired from their ends, so D's blocks receive "
        "other tokens"
    ),
    signatures=(
        seen("paired_offsets_are_equal", "Schedule", on=("full", "window"))
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window"))
        | seen("null_block_is_nobody", "Schedule", on=("window",))
    ),
    at_work=at_work,
)
