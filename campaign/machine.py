"""This module has the work of a campaign in one process: its machine, made once, and its units."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from kvproof.campaign.carry_out import Make, carry_out
from kvproof.campaign.unit import UnitResult, packed, unit_of
from kvproof.model.faults.fault import Fault, planted

UNITS_MAX = 1_000
"""Units of one process. Another takes its place then, so that what vLLM never frees does not add
up."""

TRIES_MAX = 3
"""How many workers may end with the same unit."""


class WorkerPool(Protocol):
    """A pool of `size` workers. `capacity` is the number of units that they can have at once."""

    size: int
    capacity: int
    losses: "Losses"

    def give(self, number: int, unit: bytes) -> None:
        """Give a unit to a worker."""

    def next(self, wait_s: float) -> tuple[int, bytes] | None:
        """Return the number of a unit that has ended, and its result; None if none ends in time."""

    def close(self) -> None:
        """End all workers."""


Work = Callable[[bytes], bytes]
"""Carries out one unit: both are lines of JSON."""


def work(make: Make, faults: tuple[Fault, ...], met: Counter[str] | None = None) -> Work:
    """Return the work of one process, with these faults in the model."""

    def one(line: bytes) -> bytes:
        with planted(*faults):
            return packed(carry_out(unit_of(line), make, met))

    return one


class Losses:
    """Count the workers that ended with a unit. `times` has their number by unit."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}

    def result(self, number: int) -> bytes | None:
        """Count one more loss of this unit. Return its result if it is not given out again, else
        None."""
        self.times[number] = times = self.times.get(number, 0) + 1
        if times < TRIES_MAX:
            return None
        return packed(UnitResult(number=number, error=f"{times} workers ended while they had it"))
