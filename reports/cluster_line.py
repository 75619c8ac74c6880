"""This module shows a cluster in a line: its engines, the sizes of their pools, and their cache
groups."""

from kvproof.model.config import Cluster, EngineConfig, Group


def cluster_line(cluster: Cluster) -> str:
    """Return the engines of a cluster, each with its cache groups; what all have comes once."""
    engines = [f"{engine.name} {engine.num_blocks} blocks" for engine in cluster.engines]
    groups = [_groups(engine) for engine in cluster.engines]
    if len({*groups}) == 1:
        return f"{' -> '.join(engines)}: {groups[0]}"
    parts = (f"{engine}: {those}" for engine, those in zip(engines, groups, strict=True))
    return "  ->  ".join(parts)


def _groups(engine: EngineConfig) -> str:
    """Return the cache groups of an engine as text, each with the tokens of its block."""
    return " | ".join(map(_group, engine.groups))


def _group(group: Group) -> str:
    window = f" (of {group.window})" if group.kind == "window" else ""
    state = " uncached" if group.kind == "mamba" and group.mode == "none" else ""
    drafter = " eagle" if group.eagle else ""
    return f"{group.kind} {group.block_size}{window}{state}{drafter}"
