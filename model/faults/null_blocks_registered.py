"""Second change of #42547: with hashes for the null positions, lookups go through and the attention
hit survives. Content truth says it is unsound: the null block holds no state, so a lookup that ends
at such a position hands the request a state that is not there. It goes unnoticed only while every
such request also gets its state from the connector; a request without one starts from nothing. The
remedy vLLM took instead (#44243) asks full attention alone for the hit and lets the connector bring
the state."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.rules import Rules
from kvproof.model.state import NULL, Engine, Key


def null_block_too(
    cfg: config.Engine, group: config.Group, engine: Engine, key: Key, block: int, rules: Rules
) -> Engine:
    """Of Mamba the null block is cached too, under the last key it was given."""
    if block != NULL or not group.aligned:
        return pool.cache_block(cfg, group, engine, key, block, rules)
    engine = pool.promote(engine, key, NULL, rules)
    return pool.with_blocks(engine, {NULL: engine.blocks[NULL]._replace(key=key, also=())})


FAULT = Fault(
    name="null_blocks_registered",
    origin="vllm#42547",
    mistake="the null block is registered under the hashes of skipped Mamba positions",
    replaces=("cache_block", null_block_too),
    breaks=(
        "null_block_is_nobody",
        "cached_block_holds_its_key",
    ),
    cluster="hybrid",
    trace_events=2,
)
