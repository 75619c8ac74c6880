"""Breadth-first search over the states of a machine that cannot be set to a state, such as vLLM.

A state is reached again by replay: a fresh machine takes the events that led to it. The machine
that was the first to reach a state is kept until the state is expanded, so the last of its events
needs no replay. Two states are one if all that is observed of them is equal. From each new state a
fair run goes on to its end, or to a state from which one has ended, unless no check asks for that.

Guarantee: if the search ends by itself, each order of the events of the cluster's jobs was taken on
the machine, up to states that look alike; in each state each invariant was checked, and after each
step each guard. A violation has a shortest trace, unless a fair run from a state comes to it first.
Cost: a machine for each event that does not lead to a new state.
"""

import hashlib
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kvproof.invariants.check import Check, Tally
from kvproof.model.config import Cluster
from kvproof.model.machine import Machine
from kvproof.model.state import State
from kvproof.strategies.drain import drain, over
from kvproof.strategies.explorer.running import Limits, Progress
from kvproof.strategies.explorer.running import run as run_search
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Outcome, Verdict, earned

MakeMachine = Callable[[Cluster], Machine]
"""Makes a fresh machine for a cluster, with its jobs."""

DIGEST_BYTES = 16

RUNS_MAX = 1_000
"""The largest number of machines that are kept for states still to expand."""

NOT_TWICE = "the machine did not behave the same twice"


class NotTheSame(Exception):
    """A machine is in another state although it took the same events."""


class ReplaySearch:
    """A search that can be stopped between two states."""

    look_states = 1

    def __init__(
        self,
        cluster: Cluster,
        make: MakeMachine,
        invariants: Sequence[Check],
    ) -> None:
        self.cluster, self.make, self.invariants = cluster, make, tuple(invariants)
        self.eventually = next((i.id for i in invariants if i.kind == "eventually"), None)
        self.parents, self.choices, self.widths = array("q"), array("q"), array("q")
        self.depths = array("q")
        self.known: dict[bytes, int] = {}
        self.digests: list[bytes] = []
        self.ending: set[bytes] = set()
        self.runs: dict[int, Run] = {}
        self.events: Counter[str] = Counter()
        self.events_new: Counter[str] = Counter()
        self.tally = Tally()
        self.expanded = 0
        self.violated: Violated | None = None
        run = self._fresh()
        self._add(run, digest(run.machine.state), 0, 0, 0)

    @property
    def over(self) -> bool:
        """Whether all states are expanded, or an invariant broke."""
        return self.violated is not None or self.expanded == self.states

    @property
    def states(self) -> int:
        """The number of distinct states so far."""
        return len(self.digests)

    def expand(self) -> None:
        """Take each event from the next state."""
        origin, width = self.expanded, self.widths[self.expanded]
        try:
            for choice in range(width):
                self._take(self._at(origin, last=choice == width - 1), origin, choice)
        except Violated as violated:
            self.violated = violated
        self.expanded += 1

    def coverage(self) -> dict[str, Any]:
        """The numbers of states, events and checks that were examined."""
        return {
            "states_distinct": self.states,
            "states_generated": self.events.total(),
            "depth": max(self.depths),
            "events": dict(sorted(self.events.items())),
            "events_new": dict(sorted(self.events_new.items())),
            "judged": {
                each.id: self.tally.judged[each.id]
                for each in self.invariants
                if each.kind != "eventually"
            },
        }

    def close(self) -> None:
        """Close the machines that are kept."""
        for run in self.runs.values():
            run.machine.close()
        self.runs.clear()

    def _fresh(self) -> Run:
        run = Run(self.make(self.cluster), self.invariants)
        run.tally = self.tally
        return run

    def _at(self, number: int, *, last: bool) -> Run:
        """A run in the state of this number. If a kept run is in that state, it is used for the
        `last` event from there."""
        if last and number in self.runs:
            return self.runs.pop(number)
        choices, at = [], number
        while at:
            choices.append(self.choices[at])
            at = self.parents[at]
        run = self._fresh()
        for choice in reversed(choices):
            if choice >= len(run.stimuli):
                raise NotTheSame
            run.take_one(run.stimuli[choice])
        if digest(run.machine.state) != self.digests[number]:
            raise NotTheSame
        return run

    def _take(self, run: Run, origin: int, choice: int) -> None:
        """Take an event from a state, and note the state that it leads to."""
        if choice >= len(run.stimuli):
            raise NotTheSame
        kind = type(run.stimuli[choice]).__name__
        self.events[kind] += 1
        run.take_one(run.stimuli[choice])
        reached = digest(run.machine.state)
        if reached in self.known:
            run.machine.close()
            return
        self.events_new[kind] += 1
        self._add(run, reached, origin, choice, self.depths[origin] + 1)

    def _add(self, run: Run, reached: bytes, origin: int, choice: int, depth: int) -> None:
        """Number a new state, and make sure that a fair run from it ends."""
        number = self.states
        self.known[reached] = number
        self.digests.append(reached)
        self.parents.append(origin)
        self.choices.append(choice)
        self.depths.append(depth)
        self.widths.append(0 if run.dead else len(run.stimuli))
        if self.eventually and reached not in self.ending and not over(run):
            self._end(run)
            run.machine.close()
        elif self.widths[number] and len(self.runs) < RUNS_MAX:
            self.runs[number] = run
        else:
            run.machine.close()

    def _end(self, run: Run) -> None:
        """Let a fair run go on to its end, or to a state from which one has ended."""
        passed: set[bytes] = set()

        def ends(run: Run) -> bool:
            here = digest(run.machine.state)
            passed.add(here)
            return here in self.ending or over(run)

        drain(run, self.eventually, ends)
        self.ending |= passed


def digest(state: State) -> bytes:
    """A short name of a state; two states that differ have the same one with negligible
    probability."""
    return hashlib.blake2b(msgspec.msgpack.encode(state), digest_size=DIGEST_BYTES).digest()


def explore_by_replay(
    cluster: Cluster,
    make: MakeMachine,
    invariants: Sequence[Check],
    limits: Limits = Limits(),  # noqa: B008
    progress: Progress | None = None,
) -> Outcome:
    """The verdict of an exhaustive search over a machine with the jobs of a cluster: EXHAUSTED,
    VIOLATED, or UNKNOWN if a limit or the user cut it, or if the same events led to another state.
    Raises AdapterDrift if this machine cannot be driven."""
    start = time.monotonic()
    search = ReplaySearch(cluster, make, invariants)
    try:
        reason = run_search(search, limits, progress)
    except NotTheSame:
        reason = NOT_TWICE
    finally:
        search.close()
    seconds = time.monotonic() - start
    if search.violated is not None:
        violated = search.violated
        return Outcome(
            Verdict.VIOLATED,
            search.coverage(),
            violated.events,
            violated.finding,
            seconds=seconds,
            cluster=violated.cluster,
        )
    verdict = Verdict.UNKNOWN if reason else Verdict.EXHAUSTED
    return earned(Outcome(verdict, search.coverage(), reason=reason, seconds=seconds))
