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
from collections.abc import Sequence

import msgspec

from kvproof.invariants.check import Check, Tally
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.machine import MakeMachine
from kvproof.model.state import State
from kvproof.strategies.drain import drain, over
from kvproof.strategies.explorer.collapse import Parts
from kvproof.strategies.explorer.running import Limits, Progress, Search
from kvproof.strategies.explorer.running import run as run_search
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import NOT_TWICE, Outcome, Verdict, earned

DIGEST_BYTES = 16

RUNS_MAX = 1_000
"""The largest number of machines that are kept for states still to expand."""


class NotTheSame(Exception):
    """A machine is in another state although it took the same events."""


class ReplaySearch(Search):
    """A search that takes a fresh machine to each state."""

    look_states = 1

    def __init__(
        self,
        cluster: Cluster,
        make: MakeMachine,
        invariants: Sequence[Check],
    ) -> None:
        self.cluster, self.make, self.invariants = cluster, make, tuple(invariants)
        self.eventually = next((i.id for i in invariants if i.kind == "eventually"), None)
        self.stimuli: list[list[Event]] = []
        self.ending: set[Parts] = set()
        self.runs: dict[int, Run] = {}
        self.tally = Tally()
        self.violated: Violated | None = None
        run = self._fresh()
        self.reached = SearchGraph(cluster, digest(run.machine.state))
        self._keep(run, 0)

    @property
    def is_broken(self) -> bool:
        """Whether an invariant broke."""
        return self.violated is not None

    def expand(self) -> None:
        """Take each event from the next state."""
        origin, stimuli = self.expanded, self.stimuli[self.expanded]
        try:
            for place, event in enumerate(stimuli, start=1):
                self._take(self._at(origin, last=place == len(stimuli)), origin, event)
        except Violated as violated:
            self.violated = violated
        self.reached.expanded += 1

    @property
    def judged(self) -> dict[str, int]:
        """How often each check had something to judge."""
        asked = (each.id for each in self.invariants if each.kind != "eventually")
        return {name: self.tally.judged[name] for name in asked}

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
        run = self._fresh()
        for event in self.reached.trace(number):
            if event not in run.stimuli:
                raise NotTheSame
            run.take_one(event)
        here = digest(run.machine.state), run.stimuli
        if here != (self.reached.parts[number], self.stimuli[number]):
            raise NotTheSame
        return run

    def _take(self, run: Run, origin: int, event: Event) -> None:
        """Take an event from a state, and note the state that it leads to."""
        reached, kind = self.reached, type(event).__name__
        reached.generated += 1
        reached.fired[kind] += 1
        run.take_one(event)
        name = digest(run.machine.state)
        if name in reached.numbers:
            run.machine.close()
            return
        reached.new[kind] += 1
        self._keep(run, reached.add(name, (origin, event)))

    def _keep(self, run: Run, number: int) -> None:
        """Keep the run that has come to a new state, and make sure that a fair run from it ends."""
        self.stimuli.append([] if run.dead else list(run.stimuli))
        ends = self.reached.parts[number] in self.ending
        if self.eventually and not ends and not over(run):
            self._end(run)
            run.machine.close()
        elif self.stimuli[number] and len(self.runs) < RUNS_MAX:
            self.runs[number] = run
        else:
            run.machine.close()

    def _end(self, run: Run) -> None:
        """Let a fair run go on to its end, or to a state from which one has ended."""
        passed: set[Parts] = set()

        def ends(run: Run) -> bool:
            here = digest(run.machine.state)
            passed.add(here)
            return here in self.ending or over(run)

        drain(run, self.eventually, ends)
        self.ending |= passed


def digest(state: State) -> Parts:
    """A short name of a state, as a number; two states that differ have the same one with
    negligible probability."""
    found = hashlib.blake2b(msgspec.msgpack.encode(state), digest_size=DIGEST_BYTES)
    return (int.from_bytes(found.digest()),)


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
            search.reached.coverage(search.judged),
            violated.events,
            violated.finding,
            seconds=seconds,
            cluster=violated.cluster,
        )
    verdict = Verdict.UNKNOWN if reason else Verdict.EXHAUSTED
    coverage = search.reached.coverage(search.judged)
    return earned(Outcome(verdict, coverage, reason=reason, seconds=seconds))
