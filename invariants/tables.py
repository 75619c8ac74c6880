"""What must be true of block tables and of the counters beside them."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun, whole_blocks
from kvproof.invariants.check import check
from kvproof.model.because import Excuse, Judged, because, choice, holds_if, reason
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LOADED, LOADING, NULL, Engine, Request
from kvproof.model.step import Step


@check(
    "a block table has no more entries than its tokens need",
    origin="vllm#46892",
    severity=Severity.LEAK,
    needs=(Need.TABLES, Need.STATES_KEPT),
)
def table_fits_its_tokens(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """A block table has more blocks than its tokens need. These blocks serve no token, and every
    later position in the table is off by the same number (compare vllm#46892). A claim of the same
    name is proved of the spec for all sizes.

    The tokens are the computed ones, or those of a hit and a load. With a drafter, the table also
    holds the rejected drafts of each step in flight, the lookahead slots, and a state after each
    draft.
    """
    cfg = cluster.engine(engine.name)
    for request in engine.requests:
        held = max(request.computed, request.hit + request.external)
        held += cfg.drafts * cfg.steps_in_flight
        for index, table in enumerate(request.tables):
            most = _entries_for(cfg, cfg.groups[index], held)
            yield holds_if(len(table) <= most) or because(
                reason(
                    "needs_blocks",
                    "{request} on {engine} holds {held} tokens, which need "
                    "{most} blocks of group {group}",
                    held=held,
                    most=most,
                ),
                reason("table_has", "its block table has {entries} entries", entries=len(table)),
                excuses=_why_more(cluster, cfg, request, index),
                engine=engine.name,
                request=request.id,
                group=index,
            )


def _entries_for(cfg: EngineConfig, group: Group, tokens: int) -> int:
    """The entries that a table needs for tokens: with a drafter, also those of the lookahead slots,
    and of a state after each draft."""
    ahead, scratch = (cfg.lookahead, 0) if group.attention else (0, cfg.drafts)
    return blocks_begun(tokens + ahead, group.block_size) + scratch


def _why_more(
    cluster: Cluster, cfg: EngineConfig, request: Request, index: int
) -> Iterator[Excuse]:
    """Why a table may have more entries than the tokens of its request need."""
    again = len(request.tokens) + (cfg.drafts + 1) * cfg.steps_in_flight - 1
    kept = _entries_for(cfg, cfg.groups[index], again)
    if cfg.store and cluster.failures and len(request.tables[index]) <= kept:
        yield choice("a load of a store may fail, and its request keeps blocks to compute it again")


def _most_blocks(cfg: EngineConfig, group: Group) -> int:
    """Maximum number of blocks of a group that one request may hold. A window can begin inside a
    block and then touches one more block."""
    if group.kind == "window":
        seen = group.window - 1 + cfg.chunk_tokens * cfg.steps_in_flight + cfg.lookahead
        return blocks_begun(seen, group.block_size) + 1
    return 1 + cfg.steps_in_flight + cfg.drafts


def _held(cluster: Cluster, engine: Engine) -> Iterator[tuple[str, int, int, int]]:
    """For each request and group that frees blocks: the request, the group's index, the number of
    blocks that the request holds, and its maximum."""
    cfg = cluster.engine(engine.name)
    for request in engine.requests:
        for index, table in enumerate(request.tables):
            group = cfg.groups[index]
            if group.kind != "full":
                yield request.id, index, len(table) - table.count(NULL), _most_blocks(cfg, group)


@check(
    "a request holds no more window or state blocks than its layers still read",
    origin="vllm#39734",
    severity=Severity.LEAK,
    needs=(Need.TABLES, Need.LEFT_BEHIND, Need.WINDOWS_KEPT, Need.STATES_KEPT),
)
def no_more_is_held_than_is_read(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """A window group that frees no block behind the window, or a Mamba group that keeps old states,
    holds blocks that no layer reads any more. All answers stay correct, but the pool fills up, and
    other requests wait or are preempted. At start, vLLM reserves no more blocks per request than
    this bound (compare vllm#39734).

    Blocks are freed by the next step, so a request may still hold what one step reads. For a
    window: the tokens that the first token of the step reads, and the tokens of the steps in
    flight. For a Mamba group: the state before and after each step in flight, and one state for
    each draft. A Mamba group of mode none keeps one state in one block for the whole request.
    """
    for request, index, held, may in _held(cluster, engine):
        yield holds_if(held <= may) or because(
            reason(
                "layers_read",
                "the layers of group {group} ({kind}) read at most {may} blocks "
                "of {request} on {engine}",
                kind=cluster.engine(engine.name).groups[index].kind,
                may=may,
            ),
            reason("holds_blocks", "the request holds {held} blocks", held=held),
            engine=engine.name,
            request=request,
            group=index,
        )


@check(
    "a request takes exactly the predicted number of blocks",
    origin="vllm#46892",
    severity=Severity.BOOKKEEPING,
    needs=(Need.PREDICTIONS,),
)
def predicted_is_taken(step: Step) -> Iterator[Judged]:
    """The scheduler predicts how many blocks a request will take, compares the number with the free
    blocks, and then allocates. If the prediction is too low, the pool raises in the middle of a
    step (vllm#46892). If it is too high, a request that fits waits, or preempts another request."""
    for allocation in step.effects.allocations:
        yield holds_if(allocation.predicted == allocation.taken) or because(
            reason(
                "predicted",
                "the prediction for {request} on {engine} is {predicted} blocks",
                predicted=allocation.predicted,
            ),
            reason("took", "{request} took {taken} blocks", taken=allocation.taken),
            engine=allocation.engine,
            request=allocation.request,
        )


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


@check(
    "num_cached_blocks counts only blocks that are hashed or that a hit skipped",
    origin="vllm#42547",
    severity=Severity.BOOKKEEPING,
    needs=(Need.TABLES,),
)
def counter_counts_only_cached(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """During a load no block is cached, so `num_cached_blocks` must stay at the number of blocks of
    the local hit. vllm#42547 padded the block table with null blocks for the tokens of the load and
    counted them as cached. After the load, vLLM found no block left to cache, and the loaded prefix
    was lost for later hits."""
    for request, index, cached, most, loading in _counters(cluster, engine):
        yield holds_if(cached <= most) or because(
            reason(
                "counts_as_cached",
                "{request} on {engine} counts {cached} blocks of group {group} as cached",
                cached=cached,
            ),
            reason(
                "blocks",
                "{what} {most} blocks",
                what="its local hit covers" if loading else "the tokens it holds fill",
                most=most,
            ),
            engine=engine.name,
            request=request.id,
            group=index,
        )
