"""The positions of the states in a picture, chosen so that few lines cross."""

from collections import defaultdict

from kvproof.reports.graph import Graph

SWEEPS = 40
"""The number of passes that reorder all columns. More passes hardly reduce the crossings."""

Place = tuple[int, float]
"""The depth of a state, from the left, and its height, from the top."""


def places(graph: Graph) -> list[Place]:
    """The position of each state: its depth, and a height at least 1 from the other states of that
    depth. States are near their predecessors, so that few lines cross."""
    columns: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(graph.nodes):
        columns[node.depth].append(number)
    near: dict[int, set[int]] = defaultdict(set)
    for edge in graph.edges:
        near[edge.origin].add(edge.target)
        near[edge.target].add(edge.origin)
    height = {n: float(place) for column in columns.values() for place, n in enumerate(column)}
    depths = sorted(columns)
    for sweep in range(SWEEPS):
        # Each column is ordered first by its left neighbour, then by the right one, at last by
        # both.
        beside = (-1, 1) if sweep >= SWEEPS // 2 else (-1,) if sweep % 2 == 0 else (1,)
        for depth in depths if sweep % 2 == 0 else reversed(depths):
            wanted = {}
            for n in columns[depth]:
                seen = [
                    height[o] for o in sorted(near[n]) if graph.nodes[o].depth - depth in beside
                ]
                wanted[n] = sum(seen) / len(seen) if seen else height[n]
            columns[depth].sort(key=lambda n: (wanted[n], height[n]))
            height.update(
                zip(columns[depth], spaced([wanted[n] for n in columns[depth]]), strict=True)
            )
    return [(node.depth, height[number]) for number, node in enumerate(graph.nodes)]


def spaced(wanted: list[float]) -> list[float]:
    """The heights that are at least 1 apart and nearest to the wanted ones (ascending)."""
    # A group of heights that are 1 apart moves together; groups that meet are merged.
    runs: list[tuple[float, int]] = []
    for index, height in enumerate(wanted):
        base, size = height - index, 1
        while runs and runs[-1][0] >= base:
            before, many = runs.pop()
            base, size = (base * size + before * many) / (size + many), size + many
        runs.append((base, size))
    bases = [base for base, size in runs for _ in range(size)]
    return [base + index for index, base in enumerate(bases)]
