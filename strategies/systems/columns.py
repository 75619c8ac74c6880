"""Breadth-first search of a `System` on numpy columns: one level after another, many states at
once.

The formulas of the system are evaluated unchanged on columns of its numbers, in slices that fit the
CPU cache. Guarantee: every reachable state is visited once, and a trace is a shortest one;
`columns_differ` compares the search with `plain`. Cost: some array operations for each action and
slice, and one hash look-up for each step. Memory: see `visited`.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kvproof.model.arithmetic.system import Numbers, System
from kvproof.model.errors import UsageError
from kvproof.strategies.systems.codec import Codec, Column, Words
from kvproof.strategies.systems.column_steps import ColumnSteps
from kvproof.strategies.systems.plain import SearchGraph, Stepper, Taken
from kvproof.strategies.systems.visited import Visited

SLICE = 1 << 14
"""The number of states that are expanded at once."""
STATES_MAX = 1 << 30
"""The maximum number of states: state numbers have 32 bits."""

Counts = NDArray[np.int64]
"""A number for each action."""


class ColumnSearch:
    """A search of a system with parameters of ints. With `symmetric`, states that differ in the
    order of the entries of `alike` are one state; `alike_differs` says where that is unsound."""

    def __init__(self, system: System, parameters: Numbers, *, symmetric: bool = False) -> None:
        if symmetric and not system.alike:
            raise UsageError(
                f"Nothing is declared alike in {system.name!r}. Search it without symmetry."
            )
        self._system = system
        self._names = [action.name for action in system.actions]
        self._stepper = Stepper(system, parameters)
        self._symmetric = symmetric
        self.codec = Codec(system, parameters)
        self._columns = ColumnSteps(system, parameters, self.codec, symmetric=symmetric)
        self._visited = Visited(self.codec.words)
        self._visited.add(self._packed(system.initial(parameters)))
        self._levels = [0, 1]
        """The number of the first state of each level, and how many states there are."""

    def run(self, states_max: int = STATES_MAX) -> SearchGraph:
        """Explore until all states are expanded, an invariant breaks, or more than `states_max`
        states are known while some are not expanded. Call it once only."""
        began = time.perf_counter()
        reached = SearchGraph()
        fired, new = (np.zeros(len(self._names), np.int64) for _ in range(2))
        broken: list[tuple[int, int]] = []
        while not (broken or reached.cut):
            start, end = self._levels[-2:]
            fired_before, new_before = fired.copy(), new.copy()
            for at, words in self._slices(start, end):
                columns = self._columns.columns(words)
                broken += ((number, at + row) for number, row in self._columns.broken(columns))
                reached.cut = reached.cut or len(self._visited) > min(states_max, STATES_MAX)
                if not (broken or reached.cut):
                    self._expand(words, columns, fired, new)
            if broken:
                # The states found beyond this level depend on the order of expansion.
                fired, new = fired_before, new_before
            elif len(self._visited) == end:
                break
            else:
                self._levels.append(len(self._visited))
        if reached.cut and not broken:
            broken = list(self._broken(*self._levels[-2:]))
        if broken:
            number, state = min(broken)
            reached.broken = list(self._system.invariants)[number]
            reached.trace = self._trace(state, reached.broken)
        reached.states = self._levels[-1]
        reached.generated = int(fired.sum())
        reached.depth = len(self._levels) - 2
        reached.fired = dict(zip(self._names, fired.tolist(), strict=True))
        reached.new = dict(zip(self._names, new.tolist(), strict=True))
        reached.seconds = time.perf_counter() - began
        return reached

    def states(self) -> Iterator[Numbers]:
        """The states that were reached, as tuples of ints, in the order of discovery."""
        for _, words in self._slices(0, self._levels[-1]):
            yield from self.codec.states(words)

    def _slices(self, start: int, end: int) -> Iterator[tuple[int, Words]]:
        """The words of the states with these numbers, in slices, each with its first number."""
        for at in range(start, end, SLICE):
            yield at, self._visited.words(at, min(at + SLICE, end))

    def _broken(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The invariants that are broken in these states, each with the number of a state."""
        for at, words in self._slices(start, end):
            for number, row in self._columns.broken(self._columns.columns(words)):
                yield number, at + row

    def _expand(self, words: Words, columns: list[Column], fired: Counts, new: Counts) -> None:
        """Take all steps from these states, and count them."""
        steps = list(self._columns.steps(words, columns))
        if not steps:
            return
        numbers = np.array([step.action for step in steps])
        sizes = np.array([len(step.rows) for step in steps])
        rows = self._visited.add(np.concatenate([step.words for step in steps], axis=1))
        np.add.at(fired, numbers, sizes)
        of_step = np.searchsorted(np.cumsum(sizes), rows, side="right")
        np.add.at(new, numbers, np.bincount(of_step, minlength=len(steps)))

    def _trace(self, state: int, broken: str) -> tuple[Taken, ...]:
        """A shortest run to a state of the last level, or to one in the same orbit. It is a run of
        the system without symmetry reduction."""
        way = [state]
        for level in reversed(range(len(self._levels) - 2)):
            way.append(self._before(way[-1], level))
        trace, end = self._along([self._visited.words(n, n + 1) for n in reversed(way[:-1])])
        if self._system.invariants[broken](self._stepper.parameters, end):
            raise self._unsound(
                f"{broken} holds where the trace ends, but not in all states of that orbit"
            )
        return trace

    def _before(self, state: int, level: int) -> int:
        """A state of this level from which a step leads to a state."""
        target = self._visited.words(state, state + 1)
        for at, words in self._slices(self._levels[level], self._levels[level + 1]):
            for step in self._columns.steps(words, self._columns.columns(words)):
                there = (step.words == target).all(axis=0)
                if there.any():
                    return at + int(step.rows[there.argmax()])
        raise AssertionError("a state is reached from the level before it")

    def _along(self, way: Sequence[Words]) -> tuple[tuple[Taken, ...], Numbers]:
        """The steps on ints from the initial state to each of these, up to symmetry; and the last
        state."""
        state = self._system.initial(self._stepper.parameters)
        trace: list[Taken] = []
        for words in way:
            fitting = (
                (taken, after)
                for taken, after in self._stepper.steps(state)
                if (self._packed(after) == words).all()
            )
            step = next(fitting, None)
            if step is None:
                raise self._unsound(f"No step leads from {state} to the next state of the trace")
            taken, state = step
            trace.append(taken)
        return tuple(trace), state

    def _packed(self, state: Numbers) -> Words:
        words = self.codec.pack(state)
        if self._symmetric:
            self.codec.sort(words)
        return words

    def _unsound(self, what: str) -> Exception:
        if not self._symmetric:
            return AssertionError(f"{what}: packing or the set of visited states is wrong")
        alike = self._system.alike
        return UsageError(f"{what}. Declare nothing alike: the entries of {alike} are not.")
