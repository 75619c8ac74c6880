"""The worker's half of the real NIXL connector, as far as it concerns block lists.

`NixlBaseConnectorWorker` is not started (it would open a side channel and register memory); its
own methods expand and trim the lists.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker

from kvproof.live import build
from kvproof.model import config
from kvproof.model.state import Lists

Pairs = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def worker(cfg: config.Engine) -> Any:
    """A worker of this engine that can do arithmetic on block lists and nothing else."""
    made = object.__new__(NixlBaseConnectorWorker)
    kv_cache = build.kv_cache_config(cfg)
    made.kv_cache_config = kv_cache
    made._has_mamba = cfg.has_state
    made._physical_blocks_per_logical_kv_block = cfg.physical_per_logical
    made._group_spec_types = tuple(type(g.kv_cache_spec) for g in kv_cache.transfer_groups)
    return made


def as_lists(groups: Any) -> Lists:
    """Block lists as plain tuples."""
    return tuple(tuple(int(b) for b in group) for group in groups)


def paired(decode: Any, prefill: config.Engine, local: Lists, remote: Lists) -> Pairs:
    """D's and P's kernel block lists after the real trimming."""
    own_ratio = decode._physical_blocks_per_logical_kv_block
    ratio = prefill.physical_per_logical
    ours = decode._logical_to_kernel_block_ids([list(g) for g in local], own_ratio)
    theirs = decode._logical_to_kernel_block_ids([list(g) for g in remote], ratio)
    ours, theirs = decode._apply_prefix_caching(ours, theirs, own_ratio, ratio)
    return tuple(zip(as_lists(ours), as_lists(theirs), strict=True))
