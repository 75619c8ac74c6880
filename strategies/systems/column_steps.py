"""The steps of a `System` from many states at once, as numpy columns.

`allowed` is evaluated with the states on one axis and the choices on another, so terms that depend
on only one of them are computed once. Only allowed pairs become columns.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kvproof.model.arithmetic.system import Action, Numbers, System, flat
from kvproof.model.errors import UsageError
from kvproof.strategies.systems.codec import Codec, Column, Words
from kvproof.strategies.systems.plain import choices
from kvproof.strategies.systems.shape import Shape
from kvproof.strategies.systems.visited import Rows

PAIRS_MAX = 1 << 20
"""The number of pairs of a state and a choice that are evaluated at once."""
NARROW_MAX, WIDE_MAX = 1000, 1_000_000
"""The largest number in ranges, choices and parameters for columns of 32 and of 64 bits. The sum of
two products of three such numbers fits either; a formula must not multiply more."""


class Steps(NamedTuple):
    """Steps of one action: its number, the place of the state before each, and the words after."""

    action: int
    rows: Rows
    words: Words


class ColumnSteps:
    """Expands packed states. With `symmetric` the states after are put in canonical order."""

    def __init__(
        self, system: System, parameters: Numbers, codec: Codec, *, symmetric: bool
    ) -> None:
        self._parameters = parameters
        self._codec = codec
        self._shape = Shape(codec.shape)
        self._symmetric = symmetric
        self._invariants = list(system.invariants.values())
        combinations = [choices(action, parameters) for action in system.actions]
        numbers = [n for c in combinations for chosen in c for n in chosen]
        self._kind = _kind(max(map(abs, (*flat(parameters), *numbers, codec.largest))))
        self._actions: list[tuple[Action, list[Column], int]] = [
            (action, list(np.array(c, self._kind).T), len(c))
            for action, c in zip(system.actions, combinations, strict=True)
        ]

    def columns(self, words: Words) -> list[Column]:
        """The numbers of packed states."""
        return self._codec.unpack(words, self._kind)

    def broken(self, columns: list[Column]) -> Iterator[tuple[int, int]]:
        """The numbers of the invariants that do not hold, each with the first such row."""
        state = self._state(columns)
        for number, holds in enumerate(self._invariants):
            truth = np.broadcast_to(holds(self._parameters, state), columns[0].shape)
            if not truth.all():
                yield number, int(truth.argmin())

    def steps(self, words: Words, columns: list[Column]) -> Iterator[Steps]:
        """All steps from packed states whose numbers are these columns."""
        state = self._state(columns)
        for number, (action, chosen, combinations) in enumerate(self._actions):
            enabled = action.enabled(self._parameters, state)
            rows = np.flatnonzero(np.broadcast_to(enabled, columns[0].shape))
            if not len(rows) or not combinations:
                continue
            at_once = max(1, PAIRS_MAX // combinations)
            for start in range(0, len(rows), at_once):
                some = rows[start : start + at_once]
                here = [column.take(some) for column in columns]
                places, picked = self._allowed(action, here, chosen, combinations)
                if places is not None:
                    some = some.take(places)
                    here = [column.take(places) for column in here]
                if len(some):
                    after = words.take(some, axis=1)
                    then = action.then(self._parameters, self._state(here), *picked)
                    self._codec.change(after, here, self._shape.flat(then))
                    if self._symmetric:
                        self._codec.sort(after)
                    yield Steps(number, some, after)

    def _allowed(
        self, action: Action, here: list[Column], chosen: list[Column], combinations: int
    ) -> tuple[Rows | None, list[Column]]:
        """The places of the states, once for each choice that they allow, and these choices. None
        stands for all places, once each."""
        if not chosen:
            allowed = action.allowed(self._parameters, self._state(here))
            if allowed is True:
                return None, []
            return np.flatnonzero(np.broadcast_to(allowed, here[0].shape)), []
        state = self._state([column[:, None] for column in here])
        allowed = action.allowed(self._parameters, state, *(column[None, :] for column in chosen))
        pairs = np.flatnonzero(np.broadcast_to(allowed, (len(here[0]), combinations)))
        places, which = np.divmod(pairs, combinations)
        return places, [column.take(which) for column in chosen]

    def _state(self, columns: list[Column]) -> Numbers:
        return self._shape.filled(iter(columns))


def _kind(largest: int) -> type[np.signedinteger[Any]]:
    """The integer type that intermediate results fit."""
    if largest > WIDE_MAX:
        raise UsageError(
            f"A range, a choice or a parameter is {largest}, above {WIDE_MAX}. "
            f"Make it smaller, so that products of such numbers fit 64 bits."
        )
    return np.int32 if largest <= NARROW_MAX else np.int64
