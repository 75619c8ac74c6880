"""Soundness gates of the search on columns: comparisons with the plain search."""

from kvproof.model.arithmetic.system import Numbers, System
from kvproof.model.errors import UsageError
from kvproof.strategies.systems.columns import ColumnSearch
from kvproof.strategies.systems.plain import SearchGraph, Stepper, replay
from kvproof.strategies.systems.plain import search as search_plainly


def columns_differ(system: System, parameters: Numbers) -> str | None:
    """The first difference between the search on columns and the plain search; None if states,
    steps, depth and finding are equal, and each trace ends in a state that breaks the invariant.
    For sizes that the plain search can finish."""
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
    """Why the entries of `system.alike` may not be exchanged; None if they may, at this size: the
    same invariants hold in a state and in its canonical form, both have the same steps up to the
    order of entries, and the reduced search reaches one state of each orbit."""
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
    system: System, parameters: Numbers, plain: SearchGraph, reached: SearchGraph
) -> str | None:
    if len(plain.trace) != len(reached.trace):
        return f"a trace has {len(plain.trace)} steps on ints, and {len(reached.trace)} on columns"
    if reached.broken:
        state = replay(system, parameters, reached.trace)
        if system.invariants[reached.broken](parameters, state):
            return f"the trace on columns ends in {state}, where {reached.broken} holds"
    return None
