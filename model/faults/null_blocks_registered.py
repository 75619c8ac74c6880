"""The second change of vllm#42547: it gave hashes to the null positions, so that lookups succeed
and the attention hit survives. This is unsound: the null block holds no state, and a lookup that
ends at such a position gives the request a state that does not exist. It has no effect as long as
every such request also loads its state through the connector. vLLM's fix (vllm#44243) takes the hit
from full attention alone and loads the state through the connector."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.pool import cache_block
from kvproof.model.state import NULL, Engine, Key


def null_block_too(cfg: config.EngineConfig, engine: Engine, key: Key, block: int) -> Engine:
    """In a Mamba group, cache the null block too, under the last key that it received."""
    if block != NULL or not cfg.groups[key[0]].aligned:
        return cache_block(cfg, engine, key, block)
    engine = pool.promote(engine, key, NULL)
    return pool.with_blocks(engine, {NULL: engine.blocks[NULL]._replace(key=key, also=())})


FAULT = Fault(
    name="null_blocks_registered",
    origin="vllm#42547",
    in_vllm="BlockPool.cache_full_blocks",
    mistake="the null block is registered under the hashes of skipped Mamba positions",
    replaces={"reference.blocks.pool:cache_block": null_block_too},
    breaks=(
        "null_block_is_nobody",
        "cached_block_holds_its_key",
    ),
    cluster="hybrid",
    trace_events=2,
)
