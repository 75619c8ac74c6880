"""This module has workers that are processes on this machine, forked from this one: vLLM is
imported once.

A worker gets one unit at a time. If it ends in between, another process takes its place, and the
unit is given out again.
"""

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Protocol

from kvproof.campaign.carry_out import carry_out
from kvproof.campaign.unit import UnitResult, packed, unit_of
from kvproof.model import interruption
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.machine import MakeMachine

END_S = 5.0
"""How long a worker may take to end."""

_fork = multiprocessing.get_context("fork")


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


def work(make: MakeMachine, faults: tuple[Fault, ...], met: Counter[str] | None = None) -> Work:
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


class Processes:
    """Work on a number of processes."""

    def __init__(self, count: int, work: Work) -> None:
        self.size, self.capacity = count, 2 * count
        self.work = work
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.losses = Losses()
        self.workers = [_Worker(work) for _ in range(count)]

    def give(self, number: int, unit: bytes) -> None:
        """Give a unit to a free worker, or let it wait for one."""
        self.waiting.append((number, unit))
        self._give_waiting()

    def _give_waiting(self) -> None:
        for worker in self.workers:
            if self.waiting and worker.unit is None:
                worker.give(*self.waiting.popleft())

    def next(self, wait_s: float) -> tuple[int, bytes] | None:
        """Return the number of a unit that has ended, and its result; None if none ends in time."""
        busy = {w.pipe: w for w in self.workers if w.unit is not None}
        for pipe in wait(list(busy), wait_s):
            worker = busy[pipe]  # type: ignore[index]
            assert worker.unit is not None
            number, unit = worker.unit
            result = worker.result()
            if result is None:
                self.workers[self.workers.index(worker)] = _Worker(self.work)
                result = self.losses.result(number)
                if result is None:
                    self.waiting.appendleft((number, unit))
            elif worker.units >= UNITS_MAX:
                worker.end()
                self.workers[self.workers.index(worker)] = _Worker(self.work)
            self._give_waiting()
            if result is not None:
                return number, result
        return None

    def close(self) -> None:
        """End all workers. The next campaign gives out what they have not finished."""
        with interruption.held():
            for worker in self.workers:
                worker.end()


class _Worker:
    """One process, and the unit that it has."""

    def __init__(self, work: Work) -> None:
        self.pipe, other = _fork.Pipe()
        with interruption.held():
            self.process = _fork.Process(target=_serve, args=(other, self.pipe, work), daemon=True)
            self.process.start()
        other.close()
        self.unit: tuple[int, bytes] | None = None
        self.units = 0

    def give(self, number: int, unit: bytes) -> None:
        """Begin a unit. A process that has ended is noticed when its result is read."""
        self.unit = number, unit
        self.units += 1
        with suppress(OSError):
            self.pipe.send_bytes(unit)

    def result(self) -> bytes | None:
        """Return the result of the unit; None if the process has ended."""
        self.unit = None
        try:
            return self.pipe.recv_bytes()
        except (EOFError, OSError):
            self.end()
            return None

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.kill()
        self.process.join(END_S)


def _serve(pipe: Connection, parents: Connection, work: Work) -> None:
    """Take units and give results in a worker, until the campaign closes the pipe or has ended."""
    for number in interruption.SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    parents.close()
    try:
        while True:
            pipe.send_bytes(work(pipe.recv_bytes()))
    except (EOFError, OSError):
        os._exit(0)
