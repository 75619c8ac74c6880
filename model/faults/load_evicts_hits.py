"""vllm#44409: each group referenced its hit and took its blocks for the connector's tokens, one
group after the other. So the first group could take, and evict, a hit block of the second."""

from collections.abc import Sequence

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.state import Engine, Table


def group_by_group(
    engine: Engine, hits: Sequence[Table], missing: Sequence[int]
) -> tuple[Engine, list[Table]]:
    """Take the missing blocks of a group before the hits of the next groups are referenced."""
    tables = []
    for table, count in zip(hits, missing, strict=True):
        engine, taken = pool.take(pool.touch(engine, table), count)
        tables.append((*table, *taken))
    return engine, tables


FAULT = Fault(
    name="load_evicts_hits",
    origin="vllm#44409",
    in_vllm="KVCacheCoordinator.allocate_new_computed_blocks",
    mistake="one group takes blocks for a load before the hits of the next group are referenced",
    replaces={"reference.blocks.allocation:touch_and_take": group_by_group},
    breaks=("predicted_is_taken", "cached_block_holds_its_key"),
    cluster="pd-window-wide",
    trace_events=14,
)
