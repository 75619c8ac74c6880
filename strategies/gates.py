"""Soundness gates: what a quicker search must have in common with the plain one."""

from collections.abc import Sequence

from kvproof.invariants.invariant import Invariant
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.rules import Rules
from kvproof.model.system import Numbers, System
from kvproof.strategies.columns import ColumnSearch
from kvproof.strategies.exhaustive import search
from kvproof.strategies.fairness import lasso
from kvproof.strategies.packed import PackedSearch
from kvproof.strategies.plain_system import Reached, Stepper, replay
from kvproof.strategies.plain_system import search as search_plainly
from kvproof.strategies.symmetry import Orbit, orbit
from kvproof.strategies.unfolded import Unfolded, UnsoundSymmetry

ALIKE = ("states", "parents", "depths", "edges", "self_loops", "finding", "events")


def packed_differs(
    cluster: Cluster, rules: Rules, invariants: Sequence[Invariant], states_max: int = 20_000
) -> str | None:
    """How the packed search of a scope differs from the plain one; None where each state, edge and
    finding is the same. For scopes that the plain search can finish."""
    plain = search(cluster, rules, invariants, states_max)
    packed = PackedSearch(cluster, rules, invariants)
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
    cluster: Cluster, rules: Rules, invariants: Sequence[Invariant], states_max: int = 20_000
) -> str | None:
    """What the search with symmetry sees differently; None where it is sound on this scope: states
    that it takes for one have like steps, it reaches one state of each orbit and no other, and
    verdict, length of the shortest trace and progress are those of the plain search."""
    plain = search(cluster, rules, invariants, states_max)
    reduced = PackedSearch(cluster, rules, invariants, symmetric=True)
    while not reduced.over and len(reduced.reached.packed) <= states_max:
        reduced.expand()
    try:
        whole = Unfolded(reduced)
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
        # A step within the orbit is an edge for one state and a loop for another.
        if steps[number] - {of} != steps[first] - {of}:
            return f"states {first} and {number} are taken for one, and their steps differ"
    ours = [orbit(cluster, state) for state in reduced.reached.states]
    if len(ours) != len(like) or set(ours) != set(like):
        return f"there are {len(like)} orbits, and {len(ours)} states when reduced"
    if (lasso(cluster, plain) is None) != (lasso(cluster, whole) is None):
        return "a fair run without end is seen by one search only"
    return None


def columns_differ(system: System, parameters: Numbers) -> str | None:
    """How the search on columns differs from the plain one; None where states, steps, depth and
    finding are the same, and a trace of either ends where the invariant is broken. For sizes that
    the plain search can finish."""
    plain, states = search_plainly(system, parameters)
    columns = ColumnSearch(system, parameters)
    try:
        reached = columns.run()
    except (AssertionError, UsageError) as error:
        return str(error)
    for name in ("states", "generated", "depth", "fired", "broken"):
        ours, theirs = getattr(plain, name), getattr(reached, name)
        if ours != theirs:
            return f"{name} is {ours} on ints, and {theirs} on columns"
    for state in columns.states():
        if state not in states:
            return f"{state} is reached on columns only"
    if len(set(columns.states())) != len(states):
        return "a state is reached twice on columns"
    return _trace_differs(system, parameters, plain, reached)


def alike_differs(system: System, parameters: Numbers) -> str | None:
    """Why the entries of `system.alike` may not change places; None where they may, at this size:
    a state and its canonical form have the same invariants and, up to the order of entries, the
    same steps, and the reduced search reaches one state of each orbit."""
    plain, states = search_plainly(system, parameters)
    columns = ColumnSearch(system, parameters, symmetric=True)
    try:
        reached = columns.run()
    except UsageError as error:
        return str(error)
    initial = system.initial(parameters)
    if canonical(system, initial) != initial:
        return f"the initial state {initial} is not the only one of its orbit"
    stepper = Stepper(system, parameters)
    for state in states:
        form = canonical(system, state)
        for name, holds in system.invariants.items():
            if holds(parameters, state) != holds(parameters, form):
                return f"{name} is not the same in {state} and in {form}"
        ours, theirs = (
            {canonical(system, after) for _, after in stepper.steps(one)} for one in (state, form)
        )
        if ours != theirs:
            return f"{state} and {form} do not have the same steps"
    orbits = {canonical(system, state) for state in states}
    if set(columns.states()) != orbits or reached.states != len(orbits):
        return f"there are {len(orbits)} orbits, and {reached.states} reduced states"
    if plain.verdict is not reached.verdict or plain.broken != reached.broken:
        return f"{plain.broken or 'nothing'} is broken, and {reached.broken or 'nothing'} reduced"
    return _trace_differs(system, parameters, plain, reached)


def canonical(system: System, state: Numbers) -> Numbers:
    """A state of ints with the entries of `alike` in ascending order."""
    entries = getattr(state, system.alike)
    return state._replace(**{system.alike: tuple(sorted(entries))})


def _trace_differs(
    system: System, parameters: Numbers, plain: Reached, reached: Reached
) -> str | None:
    if len(plain.trace) != len(reached.trace):
        return f"a trace has {len(plain.trace)} steps on ints, and {len(reached.trace)} on columns"
    if reached.broken:
        state = replay(system, parameters, reached.trace)
        if system.invariants[reached.broken](parameters, state):
            return f"the trace on columns ends in {state}, where {reached.broken} holds"
    return None
