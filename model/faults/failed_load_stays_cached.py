"""vLLM 0.32.0: where a request is to compute by itself what its store could not bring, the blocks
stay in the cache meanwhile. If it is aborted or preempted first, the next request that begins alike
hits blocks that nobody has written."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="failed_load_stays_cached",
    born_of="vLLM 0.32.0",
    mistake="blocks that a store could not fill stay cached until they are computed",
    replaces=("failed_load_stays_cached", lambda: True),
    breaks=(
        "cached_block_holds_its_key",
        "counter_counts_only_cached",
        "writer_is_alone",
        "request_reads_its_own_prefix",
    ),
    cluster="store-recomputing",
    concerns=lambda cluster: (
        bool(cluster.failures)
        and cluster.load_failure == "recompute"
        and any(e.store and e.prefix_caching for e in cluster.engines)
    ),
)
