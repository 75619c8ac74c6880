"""Random walks of a count-level system on plain ints: what Z3 proves must hold there too.

So the proved formulas are the ones that run, and they are about reachable states.
"""

import random
from collections.abc import Iterator
from typing import Any

from kvproof.model.arithmetic.system import System
from kvproof.model.counting_abstraction.registry import systems

WALKS = 40
STEPS = 20
TRIES = 40
"""The number of walks of a system, of steps of a walk, and of choices tried for an action."""

HIGHEST = 9
"""The largest random value of a size or a choice; the boundaries 0 and 1 are chosen more often."""


def _number(source: random.Random) -> int:
    return source.choice((0, 1, source.randint(0, 4), source.randint(0, HIGHEST)))


def _sizes(system: System, source: random.Random) -> Any:
    while True:
        chosen = {name: _number(source) for name in system.parameters._fields}
        sizes = system.parameters(**chosen)
        if system.given(sizes):
            return sizes


def _step(system: System, sizes: Any, state: Any, source: random.Random) -> Any:
    for action in source.sample(system.actions, len(system.actions)):
        if not action.enabled(sizes, state):
            continue
        for _ in range(TRIES):
            chosen = [max(r.lowest, _number(source)) for r in action.choices(sizes).values()]
            if action.allowed(sizes, state, *chosen):
                return action.then(sizes, state, *chosen)
    return None


def visited(name: str) -> Iterator[tuple[Any, Any]]:
    """Sizes and counts of states on random walks; the walks are deterministic."""
    system = systems()[name]
    source = random.Random(name)
    for _ in range(WALKS):
        sizes = _sizes(system, source)
        state = system.initial(sizes)
        for _ in range(STEPS):
            yield sizes, state
            state = _step(system, sizes, state, source)
            if state is None:
                break


def broken_claims(name: str) -> dict[str, tuple[Any, Any]]:
    """The claims about a system that some walk breaks, each with the sizes and the counts."""
    found: dict[str, tuple[Any, Any]] = {}
    for sizes, state in visited(name):
        for claim, holds in systems()[name].invariants.items():
            if claim not in found and not holds(sizes, state):
                found[claim] = sizes, state
    return found
