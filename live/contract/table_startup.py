"""The contract: the symbols that a driven start-up needs, beside those of one engine."""

from kvproof.live.contract.entry import entries
from kvproof.live.contract.table_core import SPECS, UTILS

ENTRIES = entries(
    "start-up",
    ("vllm.v1.engine.core:EngineCore._initialize_kv_caches", "the start-up itself"),
    (f"{SPECS}:MLAAttentionSpec", "layers with latent attention"),
    (f"{SPECS}:ChunkedLocalAttentionSpec", "layers with chunked local attention"),
    (f"{SPECS}:SinkFullAttentionSpec", "layers whose attention also reads sinks"),
    (
        f"{UTILS}:resolve_kv_cache_block_sizes | !{SPECS}:SlidingWindowMLASpec",
        "the block sizes of the scheduler; older releases have one for all groups",
    ),
)
