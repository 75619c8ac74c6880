"""Ingredients of causes that no step shows: each function returns a cluster without one. A known
finding that names one explains a break only where its check holds without it.
"""

from typing import Any

from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig


def unequal_block_sizes(cluster: Cluster) -> Cluster:
    """The cache groups of an engine have blocks of several sizes. Only then may a hit end inside a
    block, and a state is cached there where prompts part."""
    size = max(group.block_size for cfg in cluster.engines for group in cfg.groups)
    engines = (_with_blocks_of(size, each) for each in cluster.engines)
    return replace(cluster, engines=tuple(engines))


def _with_blocks_of(size: int, cfg: EngineConfig) -> EngineConfig:
    groups = tuple(replace(each, block_size=size) for each in cfg.groups)
    return replace(cfg, groups=groups, prefix_checkpoint=False, physical_per_logical=1)


def unequal_kernel_blocks(cluster: Cluster) -> Cluster:
    """The blocks of P and D have different numbers of kernel blocks. D has those of P, and room for
    as many tokens."""
    prefill, blocks = cluster.prefill, cluster.decode.num_blocks
    widest = max(group.block_size for group in cluster.decode.groups)
    narrowest = min(group.block_size for group in prefill.groups)
    return _decode(
        cluster,
        groups=prefill.groups,
        physical_per_logical=prefill.physical_per_logical,
        num_blocks=blocks * max(widest // narrowest, 1),
    )


def computing_ahead(cluster: Cluster) -> Cluster:
    """D has a drafter, or its steps overlap."""
    return _decode(cluster, drafts=0, steps_in_flight=1)


def losses(cluster: Cluster) -> Cluster:
    """A lease may expire, and a transfer may be lost."""
    return replace(cluster, losses=False)


def _decode(cluster: Cluster, **fields: Any) -> Cluster:
    name = cluster.decode.name
    engines = (replace(e, **fields) if e.name == name else e for e in cluster.engines)
    return replace(cluster, engines=tuple(engines))
