"""During a load no block is cached, so `num_cached_blocks` must stay at the number of blocks of the
local hit. vllm#42547 padded the block table with null blocks for the tokens of the load and counted
them as cached. After the load, vLLM found no block left to cache, and the loaded prefix was lost
for later hits."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import whole_blocks
from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LOADED, LOADING, Engine, Request
from kvproof.model.subjects import Subject


def _counters(cluster: Cluster, engine: Engine) -> Iterator[tuple[Request, int, int, int, bool]]:
    """For each request and group: the request, the group's index, the counter, its maximum, and
    whether a load is in progress.

    During a load the maximum is the number of blocks of the local hit. Otherwise it is the number
    of full blocks of the tokens that the request holds. The last token of a load is held and
    computed again.
    """
    for request in engine.requests:
        loading = request.status in (LOADING, LOADED, FAILED)
        held = max(request.computed, request.hit + request.external)
        tokens = request.hit if loading else held
        for index, cached in enumerate(request.num_cached_blocks):
            size = cluster.engine(engine.name).groups[index].block_size
            yield request, index, cached, whole_blocks(tokens, size), loading


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """No counter is above its maximum."""
    for request, index, cached, most, loading in _counters(cluster, engine):
        if cached > most:
            what = "its local hit covers" if loading else "the tokens it holds fill"
            yield because(
                reason(
                    "counts_as_cached",
                    "{request} on {engine} counts {cached} blocks of group {group} as cached",
                    cached=cached,
                ),
                reason("blocks", "{what} {most} blocks", what=what, most=most),
                engine=engine.name,
                request=request.id,
                group=index,
            )


def margin(cluster: Cluster, engine: Engine) -> int | None:
    """Smallest number of full blocks that a request has and does not count as cached yet."""
    left = (most - cached for _, _, cached, most, _ in _counters(cluster, engine))
    return min(left, default=None)


INVARIANT = Invariant(
    id="counter_counts_only_cached",
    name="num_cached_blocks counts only blocks that are hashed or that a hit skipped",
    origin="vllm#42547",
    severity=Severity.BOOKKEEPING,
    check=EachEngine(check),
    needs=(Need.TABLES,),
    subjects=(Subject.COUNTED,),
    margin=margin,
    killed_by="null_blocks_counted_as_cached",
)
