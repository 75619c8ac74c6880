"""Random runs that both sides take: one side draws a half of them, and the other takes the same, so
that the runs of base and head can be compared. Nobody waits while there is something to draw."""

from collections.abc import Sequence
from concurrent.futures import Future

from msgspec.structs import replace

from kvproof.gate.difference.record import Taken
from kvproof.gate.difference.result import Result, joined
from kvproof.gate.difference.workload import Again, Episodes, Workload
from kvproof.gate.search.side import Side

APART = 700_000
"""The seeds of the halves of one workload are so far apart."""


class Halves:
    """The halves of random episodes: the first is drawn by base (side 0), the second by head."""

    def __init__(self, workload: Episodes) -> None:
        self.workload = workload
        second = workload.episodes // 2
        self._drawn = (
            replace(workload, episodes=workload.episodes - second),
            replace(workload, episodes=second, seed=workload.seed + APART) if second else None,
        )
        self._taken: tuple[Future[tuple[Taken, ...]], ...] = Future(), Future()

    def draw(self, number: int, side: Side) -> list[Result]:
        """The result of the half of a side, which gives its runs to the other. Raises Ended."""
        half, taken = self._drawn[number], self._taken[number]
        found: list[Result] = []
        if half is not None:
            found = side.drive([half], reach=True, taken=True)
        taken.set_result(tuple(run for each in found for run in each.taken))
        return found

    def take(self, number: int, side: Side) -> list[Result]:
        """The result of the other side's half. Raises Ended."""
        if runs := self._taken[1 - number].result():
            again = Again(self.workload.name, self.workload.cluster, runs)
            return side.drive([again], reach=True)
        return []

    def fail(self, number: int, error: BaseException) -> None:
        """A side has ended: the other does not wait for its half."""
        if not self._taken[number].done():
            self._taken[number].set_exception(error)


def driven(number: int, side: Side, workloads: Sequence[Workload | Halves]) -> list[Result]:
    """The results on one side (0 is base, 1 is head), in order. Raises Ended."""
    halves = [each for each in workloads if isinstance(each, Halves)]
    results = []
    try:
        for each in workloads:
            if isinstance(each, Halves):
                parts = [each.draw(number, side), each.take(number, side)]
                of_base, of_head = parts if number == 0 else parts[::-1]
                results.append(joined(each.workload.name, [*of_base, *of_head]))
            else:
                results += side.drive([each], reach=True)
    except BaseException as error:
        for each in halves:
            each.fail(number, error)
        raise
    return results
