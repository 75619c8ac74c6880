"""Second change of #42547: with hashes for the null positions, lookups go through and the attention
hit survives. Content truth says it is unsound: the null block holds no state, so a lookup that ends
at such a position hands the request a state that is not there. It goes unnoticed only while every
such request also gets its state from the connector; a request without one starts from nothing. The
remedy vLLM took instead (#44243) asks full attention alone for the hit and lets the connector bring
the state."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="null_blocks_registered",
    born_of="vllm#42547",
    mistake="the null block is registered under the hashes of skipped Mamba positions",
    replaces=("caches_null_blocks", lambda: True),
    breaks=(
        "null_block_is_nobody",
        "cached_block_holds_its_key",
    ),
    cluster="hybrid",
)
