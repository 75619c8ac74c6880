"""If the blocks of P and D have different numbers of kernel blocks, vLLM trims the lists at the
front to equal length, although they do not end at the same token. Beside Mamba it pairs them from
their fronts, although D's list begins later after a hit, or where its window begins later (a TODO
of `_apply_prefix_caching`)."""

from kvproof.live.deviations.facts import holders, loaded, on_decode, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import NULL
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The finding is about blocks of D that were loaded from P's blocks of another width; beside
    Mamba, of a list that does not begin with the prompt."""
    if not on_decode(cluster, about):
        return False
    unequal = cluster.prefill.physical_per_logical != cluster.decode.physical_per_logical
    later = not cluster.decode.has_state or _begins_later(step, about)
    return unequal and later and loaded(step, about)


def _begins_later(step: Step, about: About) -> bool:
    """Whether the request, or a request that holds the block, hits tokens, or has no block at the
    beginning of a window."""
    known = request(step, about)
    concerned = [known] if known is not None else holders(step, about)
    return any(r.hit or any(t[:1] == (NULL,) for t in r.tables) for r in concerned)


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
    ),
    at_work=at_work,
)
