"""`kvproof sample --steps-covered`: the abstract steps that live vLLM took, of those that the model
has.

Random episodes come first. For each step that they missed, kvproof replays the events of a shortest
run of the model to this step on vLLM.

Exit code 0 if every step of the model was taken, 3 if a step was not, 1 if an episode violated an
invariant.
"""

import argparse
import time
from collections import Counter
from typing import NamedTuple

from kvproof.cli.finish import finish
from kvproof.cli.machines import Make, borrow, maker, require_core, undriven
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.events import Event
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.reports.live_line import progress
from kvproof.reports.output.steps_covered import StepsCovered
from kvproof.reports.screen import say
from kvproof.reports.tables import TextTable
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling.exercised import (
    Exercised,
    directed_steps,
    known_steps,
    random_steps,
    table,
    verdict,
)
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def run(args: argparse.Namespace) -> int:
    """Search the model, drive vLLM, and print the missed steps."""
    if args.machine != "live":
        raise UsageError(
            "--steps-covered counts the steps of real vLLM, and the model has them all. Use "
            "--machine live with it."
        )
    if args.fault or args.invariant:
        raise UsageError(
            "--steps-covered asks every check of a vLLM as it is. Use it without --fault and "
            "--invariant."
        )
    clusters = [cluster_named(args.config)] if args.config else [*CLUSTERS.values()]
    borrow(args.vllm, args.cache, live=True)
    machine = maker("live", cache=args.cache)
    require_core()
    begin = time.monotonic()
    search = _Search(machine.search, args.seed, args.examples or EXAMPLES, args.steps)
    with interruption.stoppable() as stopped, progress("sampling: {} of {} clusters") as show:
        for number, cluster in enumerate(clusters):
            interruption.check()
            show(number, len(clusters))
            search.at_random(cluster)
        search.aim()
    if stopped:
        search.outcomes.append(Outcome(Verdict.UNKNOWN, reason=INTERRUPTED))
    times = Times(time.monotonic() - begin, machine.import_s or 0.0)
    outcomes = search.outcomes
    rows = table(search.known, search.exercised)
    answer = verdict(rows, outcomes)
    return finish(
        args,
        answer.exit_code,
        lambda code: _output(rows, outcomes, answer, times, args.seed, code),
        lambda: _print(rows, outcomes),
    )


EXAMPLES = 30
"""Episodes of a cluster, if none is given."""


class Times(NamedTuple):
    """The wall time of the search, and before it of the import of vLLM, in seconds."""

    seconds: float
    import_s: float


class _Search:
    """Collect the steps of the model and of vLLM over all clusters."""

    def __init__(self, make: Make, seed: int, examples: int, steps: int) -> None:
        self.make = make
        self.seed = seed
        self.examples = examples
        self.steps = steps
        self.known: Counter[str] = Counter()
        self.exercised: Counter[str] = Counter()
        self.traces: dict[str, list[tuple[Cluster, tuple[Event, ...]]]] = {}
        self.outcomes: list[Outcome] = []

    def at_random(self, cluster: Cluster) -> None:
        """Collect the model's steps in a cluster, and run random episodes of vLLM in it."""
        for name, known in known_steps(cluster).items():
            self.known[name] += known.steps
            self.traces.setdefault(name, []).append((cluster, known.trace))
        try:
            seen, outcome = random_steps(cluster, self.make, self.seed, self.examples, self.steps)
        except AdapterDrift as drift:
            self.outcomes.append(undriven(drift))
            return
        self.exercised.update(seen)
        self.outcomes.append(outcome)

    def aim(self) -> None:
        """Replay runs of the model on vLLM for each step that is still missing, until one run
        reaches it."""
        for name in self.known:
            for cluster, trace in self.traces[name]:
                if self.exercised[name]:
                    break
                interruption.check()
                try:
                    self.exercised.update(directed_steps(cluster, self.make, trace))
                except Violated as violated:
                    found = Outcome(Verdict.VIOLATED, {"examples": 1}, finding=violated.finding)
                    self.outcomes.append(found)
                except AdapterDrift as drift:
                    self.outcomes.append(undriven(drift))


def _output(
    rows: list[Exercised],
    outcomes: list[Outcome],
    answer: Verdict,
    times: Times,
    seed: int,
    code: int,
) -> StepsCovered:
    return StepsCovered(
        exit_code=code,
        verdict=answer.value,
        seed=seed,
        seconds=round(times.seconds, 3),
        import_s=times.import_s,
        episodes=sum(o.coverage.get("examples", 0) for o in outcomes),
        unknown=tuple(_undriven(outcomes)),
        steps=tuple(rows),
    )


def _undriven(outcomes: list[Outcome]) -> list[str]:
    """Return the reasons why episodes could not be run, each once."""
    return list(dict.fromkeys(o.reason for o in outcomes if o.verdict is Verdict.UNKNOWN))


def _print(rows: list[Exercised], outcomes: list[Outcome]) -> None:
    shown = tuple(
        (row.step, str(row.model), str(row.machine), "UNKNOWN" if row.missed else "")
        for row in rows
    )
    table = TextTable(("abstract step", "model", "live", "verdict"), shown)
    table.show()
    for outcome in outcomes:
        if outcome.finding is not None:
            say(f"VIOLATED {outcome.finding.invariant}: {outcome.finding.sentence}")
    for reason in _undriven(outcomes):
        say(f"UNKNOWN: {reason}")
    known = [row for row in rows if row.model]
    missed = sum(row.missed for row in known)
    episodes = sum(o.coverage.get("examples", 0) for o in outcomes)
    say(
        f"live vLLM took {len(known) - missed} of {len(known)} abstract steps of the model in "
        f"{episodes} episodes; {missed} are missing."
    )
