"""While a load is under way nothing new is cached, so the counter stands at the local hit. #42547
padded the table with null blocks for the tokens to come and counted them as cached: caching after
the load then found nothing left to do."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import whole_blocks
from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LOADED, LOADING, Engine, Request, State


def _counters(cluster: Cluster, engine: Engine) -> Iterator[tuple[Request, int, int, int, bool]]:
    """Each counter: its request, group and count, the most it may be, and whether a load is under
    way. That is the blocks of the local hit during a load, the full blocks of the tokens held
    otherwise: the last token of a load is held, and computed again."""
    for request in engine.requests:
        loading = request.status in (LOADING, LOADED, FAILED)
        held = max(request.computed, request.hit + request.external)
        tokens = request.hit if loading else held
        for index, counted in enumerate(request.num_cached_blocks):
            size = cluster.engine(engine.name).groups[index].block_size
            yield request, index, counted, whole_blocks(tokens, size), loading


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """No counter is more than it may be."""
    for request, index, counted, most, loading in _counters(cluster, engine):
        if counted > most:
            what = "its local hit has" if loading else "the tokens it holds fill"
            yield because(
                f"{request.id} on {engine.name} counts {counted} blocks of group {index} as cached",
                f"{what} {most}",
                engine=engine.name,
                request=request.id,
                group=index,
            )


def margin(cluster: Cluster, state: State) -> int | None:
    """Full blocks of a request that are not counted yet."""
    return min(
        (
            most - counted
            for engine in state.engines
            for _, _, counted, most, _ in _counters(cluster, engine)
        ),
        default=None,
    )


INVARIANT = Invariant(
    id="counter_counts_only_cached",
    name="the cached-block counter counts only what is hashed or was skipped by a hit",
    origin="vllm#42547",
    severity=Severity.BOOKKEEPING,
    check=EachEngine(check),
    margin=margin,
    killed_by="null_blocks_counted_as_cached",
)
