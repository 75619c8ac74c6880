"""Soundness gates: comparisons of a faster search with the plain search."""

from collections.abc import Sequence

from kvproof.invariants.invariant import Invariant
from kvproof.model.config import Cluster
from kvproof.model.state import State
from kvproof.strategies.explorer import symmetry
from kvproof.strategies.explorer.exhaustive import search
from kvproof.strategies.explorer.expanded_orbits import ExpandedOrbits, UnsoundSymmetry
from kvproof.strategies.explorer.fairness import lasso
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.symmetry import Renaming

Orbit = frozenset[State]
"""All states that are equal up to renaming."""

ALIKE = ("states", "parents", "depths", "edges", "self_loops", "finding", "events")


def packed_differs(
    cluster: Cluster, invariants: Sequence[Invariant], *, states_max: int = 20_000
) -> str | None:
    """The first difference between the packed search of a scope and the plain search; None if all
    states, edges and findings are equal. For scopes that the plain search can finish."""
    plain = search(cluster, invariants, states_max)
    packed = PackedSearch(cluster, invariants)
    while not packed.over and len(packed.reached.packed) <= states_max:
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


def symmetry_differs(
    cluster: Cluster, invariants: Sequence[Invariant], *, states_max: int = 20_000
) -> str | None:
    """The first difference between the search with symmetry and the plain search; None if the
    reduction is sound on this scope: merged states have the same steps up to renaming, the search
    reaches exactly one state of each orbit, and verdict, length of the shortest trace and progress
    are equal."""
    plain = search(cluster, invariants, states_max)
    reduced = PackedSearch(cluster, invariants, symmetric=True)
    while not reduced.over and len(reduced.reached.packed) <= states_max:
        reduced.expand()
    try:
        whole = ExpandedOrbits(reduced)
        lengths = [len(plain.events), 0]
        if reduced.reached.finding is not None:
            lengths[1] = len(whole.violation(reduced)[1])
        for number in range(len(reduced.reached.packed)):
            whole.run(number)
    except UnsoundSymmetry as error:
        return str(error)
    if lengths[0] != lengths[1]:
        return f"a violation takes {lengths[0]} events (0: there is none), and {lengths[1]} reduced"
    if plain.finding is not None:
        return None
    orbits = [orbit(cluster, state) for state in plain.states]
    steps: list[set[Orbit]] = [set() for _ in orbits]
    for origin, target, _ in plain.edges:
        steps[origin].add(orbits[target])
    like: dict[Orbit, int] = {}
    for number, of in enumerate(orbits):
        first = like.setdefault(of, number)
        # A step within an orbit is an edge in one graph and a self-loop in the other.
        if steps[number] - {of} != steps[first] - {of}:
            return f"states {first} and {number} are merged, and their steps differ"
    ours = [orbit(cluster, state) for state in reduced.reached.states]
    if len(ours) != len(like) or set(ours) != set(like):
        return f"there are {len(like)} orbits, and {len(ours)} states when reduced"
    if (lasso(cluster, plain) is None) != (lasso(cluster, whole) is None):
        return "only one of the two searches finds a fair run without end"
    return None


def renamed(state: State, by: Renaming) -> State:
    """A state with jobs and tokens renamed."""
    engines = tuple(symmetry.renamed_engine(e, by) for e in state.engines)
    return State(engines, *symmetry.renamed_between(state[1:], by))


def without_ids(cluster: Cluster, state: State) -> State:
    """The state with the block ids of `first_ids`. States that differ only in block ids give equal
    results."""
    ids = {e.name: symmetry.first_ids(e) for e in state.engines}
    return state._replace(
        engines=tuple(symmetry.with_ids(e, ids[e.name]) for e in state.engines),
        transfers=symmetry.transfers_with_ids(
            cluster, state.transfers, ids[cluster.prefill.name], ids[cluster.decode.name]
        ),
    )


def orbit(cluster: Cluster, state: State) -> Orbit:
    """All states that are equal to this one up to renaming, each with the block ids of
    `first_ids`."""
    return frozenset(without_ids(cluster, renamed(state, by)) for by in symmetry.renamings(cluster))
