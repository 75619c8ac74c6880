"""This module shows a cluster in a line or two: its engines, the sizes of their pools, and their
cache groups."""

from kvproof.model.config import Cluster, EngineConfig, Group

WIDTH = 76
"""The columns of a line, at most."""


def cluster_lines(cluster: Cluster) -> list[str]:
    """Return the engines of a cluster: in one line where that fits, otherwise one line for each."""
    engines = [f"{engine.name} {engine.num_blocks} blocks" for engine in cluster.engines]
    groups = [groups_text(engine) for engine in cluster.engines]
    if len(set(groups)) == 1:
        line = f"{' -> '.join(engines)}: {groups[0]}"
        return [line] if len(line) <= WIDTH else [" -> ".join(engines), *_split(groups[0])]
    parts = [f"{engine}: {those}" for engine, those in zip(engines, groups, strict=True)]
    line = "  ->  ".join(parts)
    return [line] if len(line) <= WIDTH else [parts[0], *(f"-> {part}" for part in parts[1:])]


def groups_text(engine: EngineConfig) -> str:
    """Return the cache groups of an engine as text, each with the tokens of its block."""
    return " | ".join(map(_group, engine.groups))


def _group(group: Group) -> str:
    window = f" (of {group.window})" if group.kind == "window" else ""
    state = " uncached" if group.kind == "mamba" and group.mode == "none" else ""
    drafter = " eagle" if group.eagle else ""
    return f"{group.kind} {group.block_size}{window}{state}{drafter}"


def _split(text: str) -> list[str]:
    """Put as many groups of an engine into a line as fit."""
    lines = [""]
    for part in text.split(" | "):
        longer = f"{lines[-1]} | {part}" if lines[-1] else part
        if len(longer) <= WIDTH:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines
