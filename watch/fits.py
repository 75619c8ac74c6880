"""This module says whether a running engine has all that is needed to watch it."""

from collections.abc import Callable, Mapping
from typing import Any

from kvproof.live.contract.lookup import Missing, first_place
from kvproof.live.contract.table_watch import ENTRIES

Objects = Mapping[str, Callable[[], Any]]


def gap(scheduler: Any) -> str:
    """Name the first entry of the contract that this engine lacks, in a sentence. The answer is
    empty if it has all."""
    objects: Objects = {
        "Scheduler": lambda: scheduler,
        "KVCacheManager": lambda: scheduler.kv_cache_manager,
        "KVCacheCoordinator": lambda: scheduler.kv_cache_manager.coordinator,
        "SingleTypeKVCacheManager": lambda: (
            scheduler.kv_cache_manager.coordinator.single_type_managers[0]
        ),
        "BlockPool": lambda: scheduler.kv_cache_manager.block_pool,
        "BlockHashToBlockMap": lambda: (
            scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block
        ),
        "KVCacheBlock": lambda: scheduler.kv_cache_manager.block_pool.blocks[0],
    }

    def found(label: str) -> Any:
        try:
            return objects[label]()
        except (AttributeError, LookupError):
            raise Missing from None

    for entry in ENTRIES:
        if first_place(entry.places, found)[0] is None:
            lacks = f"this vLLM has no {entry.name}, needed to watch it ({entry.used_for})"
            return f"{lacks}. Use kvproof doctor to see what it lacks"
    return ""
