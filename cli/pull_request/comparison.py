"""Base and head, driven with the same workloads at the same time, and what only one of them breaks.

Before a difference is told it is confirmed: the side that broke a check takes the same stimuli
again in a fresh process, and so does the other side, which also runs more random episodes of the
same cluster. Where the other side breaks the same check in one of them, the defect is not new.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from kvproof.cli.pull_request.side import Side
from kvproof.strategies.difference.compare import Candidate, Results, only_on, the_same
from kvproof.strategies.difference.judged import Break, Key
from kvproof.strategies.difference.result import Result
from kvproof.strategies.difference.workload import Episodes, Follow, Workload

A = TypeVar("A")
B = TypeVar("B")

NEIGHBOURS = 16
"""The number of random episodes in which the other side may show the same break."""

NEIGHBOUR_STEPS = 40

TRIES = 3
"""The number of workloads in which one key is confirmed before it is left alone."""


class Confirmed(NamedTuple):
    """A break that was seen again on one side and not on the other. `run` shows it, and `reached`
    has the functions of vLLM that it called there."""

    workload: str
    found: Break
    run: Follow
    reached: frozenset[str]


class Comparison:
    """Both sides with their results so far. `names` are the workloads that were driven, in
    order."""

    def __init__(self, base: Side, head: Side, seed: int) -> None:
        self.base, self.head, self.seed = base, head, seed
        self.on_base, self.on_head = Results(), Results()
        self.names: list[str] = []
        self.workloads: dict[str, Workload] = {}
        self.introduced: list[Confirmed] = []
        self.not_again: list[Candidate] = []
        self._tries: dict[Key, int] = {}
        self._pool = ThreadPoolExecutor(2)

    def at_once(
        self, on_base: Callable[[Side], A], on_head: Callable[[Side], B]
    ) -> tuple[A, B]:
        """What two functions return that run at the same time, one with each side. Raises Ended."""
        first, second = self._pool.submit(on_base, self.base), self._pool.submit(on_head, self.head)
        return first.result(), second.result()

    def drive(self, workloads: Sequence[Workload]) -> None:
        """Drive these workloads on both sides. Raises Ended."""
        base, head = self.at_once(
            lambda side: side.drive(workloads, reach=True),
            lambda side: side.drive(workloads, reach=True),
        )
        self.on_base.add(base)
        self.on_head.add(head)
        self.names += [workload.name for workload in workloads]
        self.workloads.update({workload.name: workload for workload in workloads})

    def confirm(self, names: Sequence[str]) -> None:
        """Confirm what only head breaks in these workloads. Raises Ended."""
        for candidate in only_on(self.on_head, self.on_base, names):
            key = candidate.found.key
            if self._settled(key):
                continue
            self._tries[key] = self._tries.get(key, 0) + 1
            run, result, seen_on_base = self._tried(candidate, self.head, self.base)
            if not the_same(key, result):
                self.not_again.append(candidate)
            elif not seen_on_base:
                again = result.keys.get(key, candidate.found)
                self.introduced.append(
                    Confirmed(candidate.workload, again, run, frozenset(result.reached))
                )

    def _settled(self, key: Key) -> bool:
        told = any(one.found.key == key for one in self.introduced)
        known = bool(key.by) and any(other.by == key.by for other in self.on_base.keys_broken)
        return told or known or self._tries.get(key, 0) >= TRIES

    def _tried(self, candidate: Candidate, ours: Side, theirs: Side) -> tuple[Follow, Result, bool]:
        """The run of a candidate, its result on the side that showed it, and whether the other side
        shows it too, or could not be asked."""
        found = candidate.found
        run = Follow(f"{candidate.workload}, again", found.cluster, found.events)
        around = Episodes(
            f"{candidate.workload}, around", found.cluster, self.seed, NEIGHBOURS, NEIGHBOUR_STEPS
        )
        first = self._pool.submit(ours.drive, [run], reach=True)
        second = self._pool.submit(theirs.drive, [run, around])
        [result], others = first.result(), second.result()
        asked = [other for other in others if not other.reason]
        shown = any(the_same(found.key, other) for other in asked)
        return run, result, shown or len(asked) < len(others)

    def mended(self) -> Iterator[Confirmed]:
        """What only base breaks, if it shows it again and head does not break it anywhere. Raises
        Ended."""
        on_head = self.on_head.keys_broken
        for candidate in only_on(self.on_base, self.on_head, self.names):
            if candidate.found.key in on_head:
                continue
            run = Follow(f"{candidate.workload}, again", candidate.found.cluster, candidate.found.events)
            [on_base], [there] = self.at_once(
                lambda side, run=run: side.drive([run]),  # type: ignore[misc]
                lambda side, run=run: side.drive([run], reach=True),  # type: ignore[misc]
            )
            if the_same(candidate.found.key, on_base) and not the_same(candidate.found.key, there):
                yield Confirmed(candidate.workload, candidate.found, run, frozenset(there.reached))

    def still_there(self) -> list[tuple[str, Break]]:
        """What both sides break: the workload and the shortest run on head, one for each key."""
        on_base = self.on_base.keys_broken
        shortest: dict[Key, tuple[str, Break]] = {}
        for name in self.names:
            for key, each in self.on_head[name].keys.items():
                kept = shortest.get(key)
                if key in on_base and (kept is None or len(each.events) < len(kept[1].events)):
                    shortest[key] = name, each
        return list(shortest.values())

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
