"""vLLM 0.32.0: a store fails to load some blocks, and the request recomputes them. Until then the
blocks stay in the cache. If the request is aborted or preempted first, the next request with the
same prefix hits blocks that were never written."""

from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.failed_load import uncache_missing
from kvproof.model.state import Engine, Request


def only_where_the_request_ends(
    cluster: Cluster, engine: Engine, request: Request, missing: tuple[int, ...]
) -> tuple[Engine, Request]:
    """A request that recomputes its missing blocks keeps them in the cache."""
    if cluster.load_failure == "recompute":
        return engine, request
    return uncache_missing(cluster, engine, request, missing)


FAULT = Fault(
    name="failed_load_stays_cached",
    origin="vLLM 0.32.0",
    in_vllm="Scheduler._handle_invalid_blocks",
    mistake="blocks that a store failed to load stay cached until they are recomputed",
    replaces={"reference.transfers.failed_load:uncache_missing": only_where_the_request_ends},
    breaks=(
        "cached_block_holds_its_key",
        "counter_counts_only_cached",
        "writer_is_alone",
        "request_reads_its_own_prefix",
    ),
    cluster="store-recomputing",
    trace_events=7,
    concerns=lambda cluster: (
        bool(cluster.failures)
        and cluster.load_failure == "recompute"
        and any(e.store and e.prefix_caching for e in cluster.engines)
    ),
)
