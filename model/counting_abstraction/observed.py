"""How a step changed one part of a state, in counts."""

from typing import Any, NamedTuple


class Move(NamedTuple):
    """One action of a step, and the possible values of each of its choices, by name."""

    action: str
    choices: tuple[tuple[str, tuple[int, ...]], ...] = ()


def move(action: str, **choices: tuple[int, ...]) -> Move:
    """Make a move with these choices."""
    return Move(action, tuple(choices.items()))


class Observed(NamedTuple):
    """One part of a state: its system, the sizes that the cluster fixes, the counts before the
    step, the actions of the step in order, and the counts after it."""

    about: str
    system: str
    sizes: Any
    before: Any
    moves: tuple[Move, ...]
    after: Any
