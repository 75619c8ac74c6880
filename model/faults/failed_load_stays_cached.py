"""vLLM 0.32.0: where a request is to compute by itself what its store could not bring, the blocks
stay in the cache meanwhile. If it is aborted or preempted first, the next request that begins alike
hits blocks that nobody has written."""

from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.transfers import failed_load
from kvproof.model.state import Engine, Request


def only_where_the_request_ends(
    cluster: Cluster, engine: Engine, request: Request, missing: tuple[int, ...], rules: Rules
) -> tuple[Engine, Request]:
    """One that computes by itself what is missing keeps it in the cache meanwhile."""
    if cluster.load_failure == "recompute":
        return engine, request
    return failed_load.uncache_missing(cluster, engine, request, missing, rules)


FAULT = Fault(
    name="failed_load_stays_cached",
    origin="vLLM 0.32.0",
    mistake="blocks that a store could not fill stay cached until they are computed",
    replaces=("uncache_missing", only_where_the_request_ends),
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
