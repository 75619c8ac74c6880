"""The comparison of the explorer with the plain search, state by state."""

from collections.abc import Sequence

from kvproof.invariants.check import Check
from kvproof.model.config import Cluster
from kvproof.strategies.explorer.packed import PackedSearch
from tests.breadth_first import search

ALIKE = ("states", "parents", "depths", "edges", "self_loops", "finding", "events")


def packed_differs(
    cluster: Cluster, invariants: Sequence[Check], *, states_max: int = 20_000
) -> str | None:
    """The first difference between the packed search of a scope and the plain search; None if all
    states, edges and findings are equal. For scopes that the plain search can finish."""
    plain = search(cluster, invariants, states_max)
    packed = PackedSearch(cluster, invariants)
    while not packed.over and len(packed.reached.parts) <= states_max:
        packed.expand()
    for name in ALIKE:
        ours, theirs = getattr(plain, name), getattr(packed.reached, name)
        if isinstance(ours, list):
            if len(ours) != len(theirs):
                return f"there are {len(ours)} {name}, and {len(theirs)} when packed"
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if one != other:
                    return f"number {number} of the {name} is {one}, and {other} when packed"
        elif ours != theirs:
            return f"the {name} are {ours}, and {theirs} when packed"
    if plain.generated != packed.reached.generated:
        return f"{plain.generated} steps were taken, and {packed.reached.generated} when packed"
    return None
