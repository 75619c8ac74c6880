"""Loads from P or from a store: the blocks that they take, and what follows where one fails."""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.table import TableCounts
from kvproof.model.faults.fault import fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.reference.transfers.request_ends import uncache_missing
from kvproof.model.state import FAILED, LOADED, LOADING, PAUSED, RUNNING, Engine, Request, Table


@fault(
    "one group takes blocks for a load before the hits of the next group are referenced",
    origin="vllm#44409",
    in_vllm="KVCacheCoordinator.allocate_new_computed_blocks",
    replaces="reference.blocks.allocation:touch_and_take",
    breaks=("predicted_is_taken", "cached_block_holds_its_key"),
    cluster="pd-window-wide",
)
def load_evicts_hits(
    engine: Engine, hits: Sequence[Table], missing: Sequence[int]
) -> tuple[Engine, list[Table]]:
    """vllm#44409: each group referenced its hit and took its blocks for the connector's tokens,
    one group after the other. So the first group could take, and evict, a hit block of the
    second."""
    tables = []
    for table, count in zip(hits, missing, strict=True):
        engine, taken = pool.take(pool.touch(engine, table), count)
        tables.append((*table, *taken))
    return engine, tables


@fault(
    "blocks that a load fills are erased by the step that begins the load",
    origin="vllm#48481",
    replaces="reference.scheduling.scheduler:blocks_to_zero",
    breaks="zeroed_blocks_are_new",
    cluster="pd",
)
def blocks_of_loads_are_zeroed(
    group: config.Group, blocks: Sequence[int], _loaded: Sequence[int]
) -> list[int]:
    """vllm#48481: the worker erased all new attention blocks, also those that an asynchronous
    load was filling at that time."""
    return [*blocks] if group.attention else []


@fault(
    "a load may take blocks that earlier requests need to finish",
    origin="vllm#45388",
    in_vllm="Scheduler._inflight_prefill_reserved_blocks",
    replaces="reference.scheduling.greedy:Greedy.leaves_room",
    breaks="every_request_can_finish",
    cluster="pd-tight",
)
def loads_take_the_last_blocks(_work: Greedy, _before: Engine, _name: str) -> bool:
    """vllm#45388, fixed by vllm#44560: loads were admitted as long as there were blocks for the
    loaded tokens. Each loaded request then needed one more block to continue. No request could
    be preempted, and all waited for each other."""
    return True


@fault(
    "a request that waits for its load counts as a running request",
    origin="vllm#53130",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.scheduler_step:takes_a_place",
    breaks="every_request_can_finish",
    cluster="pd-limited",
)
def deferred_requests_take_places(status: str) -> bool:
    """vllm#53130: requests that wait for their loads counted towards `max_num_seqs`. When the
    loads never came, no other request was admitted. The engine was healthy and scheduled
    nothing."""
    return status in (RUNNING, PAUSED, LOADING, LOADED, FAILED)


def waiting_on_in_counts(t: TableCounts) -> TableCounts:
    """The counts of such a request."""
    return t._replace(computed=0)


@fault(
    "a request continues to wait for its load after the load has failed",
    origin="vllm#35943",
    in_vllm="Scheduler._handle_failed_recving",
    replaces="reference.transfers.request_ends:restarted",
    also_replaces={"counting_abstraction.table_system:restarted": waiting_on_in_counts},
    breaks="every_request_can_finish",
    cluster="pd-recomputing",
)
def failed_load_waits_on(request: Request) -> Request:
    """vllm#35943: a failed transfer was only logged, and its request waited for the end of the
    transfer for ever."""
    return request._replace(computed=0)


@fault(
    "a request without blocks is tried before requests that hold loaded blocks",
    origin="vllm#57841",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.greedy:without_blocks",
    breaks="every_request_can_finish",
    cluster="pd-window-recomputing",
)
def failed_load_holds_the_queue(_request: Request) -> bool:
    """vllm#57841, its last limit: a request whose load failed has lost its blocks, and keeps its
    place before requests that hold loaded blocks. To compute its prompt takes more blocks than
    to load it, where a group has a window. The step ends at it, so nobody behind it runs and
    frees a block."""
    return False


@fault(
    "blocks that a store failed to load stay cached until they are recomputed",
    origin="vLLM 0.32.0",
    in_vllm="Scheduler._handle_invalid_blocks",
    replaces="reference.transfers.request_ends:uncache_missing",
    breaks=(
        "cached_block_holds_its_key",
        "counter_counts_only_cached",
        "writer_is_alone",
        "request_reads_its_own_prefix",
    ),
    cluster="store-recomputing",
)
def failed_load_stays_cached(
    cluster: Cluster, engine: Engine, request: Request, missing: tuple[int, ...]
) -> tuple[Engine, Request]:
    """vLLM 0.32.0: a store fails to load some blocks, and the request recomputes them. Until
    then the blocks stay in the cache. If the request is aborted or preempted first, the next
    request with the same prefix hits blocks that were never written. Here a request that
    recomputes its missing blocks keeps them in the cache."""
    if cluster.load_failure == "recompute":
        return engine, request
    return uncache_missing(cluster, engine, request, missing)


@fault(
    "a step dispatched after a step with a failed load keeps its token and its placeholder",
    origin="vllm#45138",
    in_vllm="Scheduler._handle_invalid_blocks",
    replaces="reference.transfers.request_ends:void_steps",
    breaks=(
        "no_token_of_a_failed_load",
        "placeholders_are_samples_in_flight",
        "step_makes_progress",
        "every_request_can_finish",
    ),
    cluster="store-failing-async",
)
def poisoned_step_counts(engine: Engine, _name: str) -> Engine:
    """vllm#45138: after a failed load vLLM reduced the computed tokens. It processed the next
    step of the request, which was already dispatched, as if nothing had happened. The token of
    that step was computed from KV that was never loaded, and the number of placeholders stayed
    wrong."""
    return engine
