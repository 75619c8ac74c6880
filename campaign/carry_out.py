"""This module carries out one unit. The result depends on the unit alone."""

import traceback
from collections import Counter
from collections.abc import Sequence
from random import Random

from kvproof.campaign.behaviours import behaviours, steps_among
from kvproof.campaign.planned import carry_out_plans
from kvproof.campaign.unit import (
    CorpusEntry,
    FoundRun,
    KeptRun,
    Unit,
    UnitResult,
)
from kvproof.gate.difference.workload import Engines, Episodes, Plays
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event, Submit, stimulus
from kvproof.model.finding import Signature, signature
from kvproof.model.machine import MakeMachine
from kvproof.model.plans.part import Taken
from kvproof.model.step import Step
from kvproof.model.traces.lines import Found
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.episode import Target
from kvproof.strategies.sampling.random_episodes import RandomEpisodes
from kvproof.strategies.shrinking import shrunk

SHRINKING_RUNS_MAX = 150
"""The most runs that are tried to make the run of a finding shorter."""

EVENTUALLY = next(i.id for i in CHECKS.values() if i.kind == "eventually")


def carry_out(unit: Unit, make: MakeMachine, met: Counter[str] | None = None) -> UnitResult:
    """Carry out a unit, and return its result. `met` counts the known findings that the machines
    explain."""
    if isinstance(unit.work, Plays | Engines):
        return carry_out_plans(unit)
    work = _Work(unit, make, Counter() if met is None else met)
    try:
        if isinstance(unit.work, Episodes):
            work.draw(unit.work)
        else:
            work.follow(unit.work)
    except AdapterDrift as drift:
        return work.result(**{"undriven" if drift.later else "error": str(drift)})
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-1:]).strip()
        return work.result(error=f"{where:.600}")
    return work.result()


class _Work:
    """One unit while it is carried out."""

    def __init__(self, unit: Unit, make: MakeMachine, met: Counter[str]) -> None:
        self.unit, self.make, self.met = unit, make, met
        self.before = Counter(met)
        self.at_run = Counter(met)
        self.steps = self.runs = 0
        self.seen: set[str] = set()
        self.kept: list[KeptRun] = []
        self.found: dict[Signature, FoundRun] = {}
        self.first: dict[Signature, Violated] = {}

    def result(self, *, undriven: str = "", error: str = "") -> UnitResult:
        """Return what the unit gave so far."""
        return UnitResult(
            number=self.unit.number,
            steps=self.steps,
            runs=self.runs,
            kept=tuple(self.kept),
            found=tuple(self.found.values()),
            met=dict(sorted((self.met - self.before).items())),
            undriven=undriven,
            error=error,
        )

    def draw(self, fresh: Episodes) -> None:
        """Take random episodes of a cluster."""
        target = Target(
            fresh.cluster,
            self.make,
            ended=lambda run: self.note(run.machine.cluster, run.steps),
            failed=self.violated,
        )
        episodes = RandomEpisodes(target, fresh.steps, Random(fresh.seed).getrandbits(32))
        for _ in range(fresh.episodes):
            self.first.clear()
            episodes.run()
            self.shorten()

    def follow(self, entries: Sequence[CorpusEntry]) -> None:
        """Take each entry as it is."""
        for entry in entries:
            self.take(entry)

    def take(self, entry: CorpusEntry) -> None:
        """Take one run to its end."""
        self.first.clear()
        try:
            run = taken(self.make, entry)
        except Violated as violated:
            self.violated(violated)
            self.shorten()
        else:
            self.note(run.machine.cluster, run.steps)

    def violated(self, violated: Violated) -> None:
        """Note a finding and its run."""
        self.note(violated.cluster, violated.steps)
        by = signature(violated.cluster, violated.events[-1], violated.finding)
        self.first.setdefault(by, violated)

    def note(self, cluster: Cluster, steps: Sequence[Step]) -> None:
        """Count a run, and keep it if it shows what no earlier run of this unit showed."""
        self.runs += 1
        self.steps += len(steps)
        met = self.met - self.at_run
        self.at_run = Counter(self.met)
        shown = dict.fromkeys(behaviours(cluster, steps, met))
        new = tuple(each for each in shown if each not in self.seen)
        if new:
            self.seen.update(new)
            events = tuple(stimulus(step.event) for step in steps)
            entry = CorpusEntry(_arrived(cluster, events), events, shows=steps_among(shown))
            self.kept.append(KeptRun(entry, new))

    def shorten(self) -> None:
        """Make the runs of new findings shorter."""
        for by, violated in self.first.items():
            if by in self.found or by in self.unit.known:
                continue
            shortest = shorter(self.make, by, violated)
            self.found[by] = FoundRun(
                by, Found.of(shortest.finding), CorpusEntry(shortest.cluster, shortest.events)
            )
        self.at_run = Counter(self.met)


def _arrived(cluster: Cluster, events: Sequence[Event]) -> Cluster:
    """Return the cluster with only those jobs that arrive, or that an arriving job follows."""
    names = {event.request for event in events if isinstance(event, Submit)}
    names |= {job.follows for job in cluster.jobs if job.name in names}
    return cluster.carrying(*(job for job in cluster.jobs if job.name in names))


def taken(make: MakeMachine, entry: Taken) -> Run:
    """Take the events of an entry that are possible when their turn comes, and drive the run to its
    end. Raises Violated."""
    run = Run(make(entry.cluster.carrying()))
    try:
        run.add_jobs(entry.cluster.jobs)
        list(run.follow(entry.events))
        drain(run, EVENTUALLY)
    finally:
        run.machine.close()
    return run


def shorter(make: MakeMachine, by: Signature, violated: Violated) -> Violated:
    """Return the shortest run found that ends with a finding of this signature."""
    best = violated

    def shows(run: Taken) -> bool:
        nonlocal best
        again = ending(make, by, run)
        if again is not None and len(again.steps) <= len(best.steps):
            best = again
        return again is not None

    whole = Taken(violated.cluster, tuple(map(stimulus, violated.events)))
    shrunk(whole, shows, SHRINKING_RUNS_MAX)
    return best


def ending(make: MakeMachine, by: Signature, run: Taken) -> Violated | None:
    """Return the run as it was taken, if it ends with a finding of this signature."""
    try:
        taken(make, run)
    except Violated as violated:
        shown = signature(violated.cluster, violated.events[-1], violated.finding)
        return violated if shown == by else None
    return None
