"""The range of an integer variable."""

from typing import Annotated, NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, both


class Range(NamedTuple):
    """The range of one integer variable: from `lowest` up to `highest`, or without an upper limit
    if `highest` is None."""

    lowest: int
    highest: int | None = None

    def has(self, value: Num) -> Truth:
        """Whether the value is in the range."""
        if self.highest is None:
            return value >= self.lowest
        return both(value >= self.lowest, value <= self.highest)

    def text(self, name: str) -> str:
        """The range as an assumption about the variable of this name."""
        if self.highest is None:
            return f"{name} >= {self.lowest}"
        return f"{self.lowest} <= {name} <= {self.highest}"


def at_least(lowest: int) -> Range:
    """Make the range from this number up."""
    return Range(lowest)


def between(lowest: int, highest: int) -> Range:
    """Make the range between these two numbers, both included."""
    return Range(lowest, highest)


Natural = Annotated[Num, at_least(0)]
"""A variable of a proof: any number from 0 on."""

Positive = Annotated[Num, at_least(1)]
"""A variable of a proof: any number from 1 on."""

Bit = Annotated[Num, between(0, 1)]
"""A variable of a proof: 0 or 1."""
