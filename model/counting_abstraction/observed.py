"""What a step did to one part of a state, in counts."""

from typing import Any, NamedTuple


class Move(NamedTuple):
    """One action of a step, and the values each of its choices may have, by the choice's name."""

    action: str
    choices: tuple[tuple[str, tuple[int, ...]], ...] = ()


def move(action: str, **choices: tuple[int, ...]) -> Move:
    """A move with these choices."""
    return Move(action, tuple(choices.items()))


class Observed(NamedTuple):
    """One part: the system it belongs to, the sizes the cluster fixes, the counts before the step,
    its actions in their order, and the counts after it."""

    about: str
    system: str
    sizes: Any
    before: Any
    moves: tuple[Move, ...]
    after: Any
