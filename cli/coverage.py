"""`kvproof coverage`: the abstract steps that live vLLM took, of those that the model has.

Random episodes come first. For each step that they missed, kvproof replays the events of a shortest
run of the model to this step on vLLM.

Exit code 0 if every step of the model was taken, 3 if a step was not, 1 if an episode violated an
invariant.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.finish import finish
from kvproof.cli.machines import Make, borrow, maker, require_core, undriven
from kvproof.cli.progress import progress
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.reports.output.many import AbstractStep, Coverage, ExecutedLines
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="a preset (see kvproof explain configs), random:SEED, or a JSON file (repeatable; "
        "default: all presets)",
    )
    parser.add_argument(
        "--examples",
        type=options.at_least_one,
        default=30,
        help="number of episodes for each cluster",
    )
    parser.add_argument(
        "--steps", type=options.at_least_one, default=40, help="number of choices in an episode"
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        help="also count the executed lines of vLLM's KV-cache accounting",
    )
    options.add_vllm(parser)


def run(args: argparse.Namespace) -> int:
    """Search the model, drive vLLM, and print the missed steps."""
    clusters = [cluster_named(name) for name in args.config or CLUSTERS]
    borrow(args.vllm, args.cache, live=True)
    with _lines(args.lines) as lines:
        machine = maker("live", cache=args.cache)
        require_core()
        begin = time.monotonic()
        search = _Search(machine.search, args)
        with interruption.stoppable() as stopped, progress("coverage: {} of {} clusters") as show:
            for number, cluster in enumerate(clusters):
                interruption.check()
                show(number, len(clusters))
                search.at_random(cluster)
            search.aim()
        if stopped:
            search.outcomes.append(Outcome(Verdict.UNKNOWN, reason=INTERRUPTED))
        times = Times(time.monotonic() - begin, machine.import_s or 0.0)
        executed = tuple(ExecutedLines(**line._asdict()) for line in lines())
    outcomes = search.outcomes
    rows = table(search.known, search.exercised)
    answer = verdict(rows, outcomes)
    return finish(
        args,
        answer.exit_code,
        lambda code: _output(rows, outcomes, executed, answer, times, args.seed, code),
        lambda: _print(rows, outcomes, executed),
    )


class Times(NamedTuple):
    """The wall time of the search, and before it of the import of vLLM, in seconds."""

    seconds: float
    import_s: float


class _Search:
    """The steps of the model and of vLLM over all clusters."""

    def __init__(self, make: Make, args: argparse.Namespace) -> None:
        self.make = make
        self.args = args
        self.known: Counter[str] = Counter()
        self.exercised: Counter[str] = Counter()
        self.traces: dict[str, list[tuple[Cluster, tuple[Event, ...]]]] = {}
        self.outcomes: list[Outcome] = []

    def at_random(self, cluster: Cluster) -> None:
        """Collect the model's steps in a cluster, and run random episodes of vLLM in it."""
        for name, known in known_steps(cluster).items():
            self.known[name] += known.steps
            self.traces.setdefault(name, []).append((cluster, known.trace))
        args = self.args
        try:
            seen, outcome = random_steps(cluster, self.make, args.seed, args.examples, args.steps)
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


@contextmanager
def _lines(wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield list
        return
    from kvproof.live.accounting import lines_executed

    with lines_executed() as lines:
        yield lines


def _output(
    rows: list[Exercised],
    outcomes: list[Outcome],
    executed: tuple[ExecutedLines, ...],
    answer: Verdict,
    times: Times,
    seed: int,
    code: int,
) -> Coverage:
    return Coverage(
        exit_code=code,
        verdict=answer.value,
        seed=seed,
        seconds=round(times.seconds, 3),
        import_s=times.import_s,
        episodes=sum(o.coverage.get("examples", 0) for o in outcomes),
        unknown=tuple(_undriven(outcomes)),
        steps=tuple(AbstractStep(**row._asdict()) for row in rows),
        lines=executed,
    )


def _undriven(outcomes: list[Outcome]) -> list[str]:
    """The reasons why episodes could not be run, each once."""
    return list(dict.fromkeys(o.reason for o in outcomes if o.verdict is Verdict.UNKNOWN))


def _print(
    rows: list[Exercised], outcomes: list[Outcome], executed: Sequence[ExecutedLines]
) -> None:
    shown = tuple(
        (row.step, str(row.model), str(row.machine), "UNKNOWN" if row.missed else "")
        for row in rows
    )
    table = TextTable(("abstract step", "model", "live", "verdict"), shown)
    table.show()
    if executed:
        say()
        _line_table(executed).show()
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


def _line_table(executed: Sequence[ExecutedLines]) -> TextTable:
    """The executed statements of each module, without the first word of its name."""
    rows = []
    for line in executed:
        share = f"{100 * line.executed / max(line.statements, 1):.0f} %"
        executed_of = f"{line.executed} of {line.statements}"
        rows.append((line.module.removeprefix("vllm."), executed_of, share))
    return TextTable(("module of vllm", "executed", "share"), tuple(rows))
