"""The page of all checks: what each judges, what excuses its breaks, and how often either happened.

    python benchmarks/checks.py --results FOLDER [--runs 1000] [--vllm PATH] [--seed N]

It writes reports/checks.md. Of the runs, half are episodes of clusters, three tenths plans for
connectors, and the rest engines that start, of the vLLM that is installed or given. Each
part of ten runs is kept in the folder, so a run that was stopped continues. The excuses of a check
are read from its source, and from what it calls in invariants/. Exit code: 0 the page is written, 2
bad usage.
"""

import argparse
import ast
import inspect
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from itertools import count, cycle, islice
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

from kvproof.invariants.check import FOUND, Check, Ending, Tally
from kvproof.invariants.registry import CHECKS
from kvproof.model.because import Excuse, Judged
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.connectors import Fact
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.plans.random_engines import random_engine
from kvproof.model.state import Engine, State
from kvproof.model.step import Step

PAGE = Path(__file__).parents[1] / "reports" / "checks.md"
PART = 10
"""The number of runs that are kept together."""

OF_TEN = {"clusters": 5, "plans": 3, "engines": 2}
"""How many of ten runs are of each kind."""

STEPS = 40
"""The choices of an episode of a cluster."""

CANNOT = "cannot be judged"
"""What a comment says where a check leaves something out."""

HEAD = """# All checks

Made by `python benchmarks/checks.py`. A check yields what keeps its sentence and what falls short
of it. A break may have excuses: a `choice` is what a good scheduler may do, a `release` what vLLM
does today and nobody knows a reason for. On one vLLM an excused break is no violation; between two
it is told where head needs an excuse that base does not need. An *ideal* is a sentence that no
engine fully keeps: each of its breaks has excuses. *Not judged* counts the places at which the
source says why something cannot be judged. A break with several excuses counts in each of them.
"""


class Counted(NamedTuple):
    """What some runs showed: how often each check judged something, and how often a break of it had
    an excuse, in the words of the excuse. `not_run` counts the runs that this vLLM refused, or
    cannot be driven in, by the reason."""

    judged: Counter[str]
    excused: Counter[tuple[str, str]]
    not_run: Counter[str]

    def add(self, check: Check, judged: Judged) -> None:
        """Count one answer of a check."""
        self.judged[check.id] += judged.times
        for excuse in judged.excuses:
            self.excused[check.id, excuse.says] += 1

    def as_data(self) -> dict[str, Any]:
        """The counts as plain data."""
        excused = [[*key, times] for key, times in sorted(self.excused.items())]
        judged, not_run = sorted(self.judged.items()), sorted(self.not_run.items())
        return {"judged": dict(judged), "excused": excused, "not_run": dict(not_run)}

    def update(self, other: "Counted") -> None:
        """Add the counts of other runs."""
        for own, others in zip(self, other, strict=True):
            own.update(others)


def nothing() -> Counted:
    """The counts of no run."""
    return Counted(Counter(), Counter(), Counter())


@contextmanager
def counting(into: Counted) -> Iterator[None]:
    """Count all answers of checks in every run meanwhile."""
    add = Tally.add

    def counted(tally: Tally, check: Check, judged: Judged) -> None:
        into.add(check, judged)
        add(tally, check, judged)

    with patch.object(Tally, "add", counted):
        yield


@contextmanager
def refusals(into: Counted) -> Iterator[None]:
    """Note what this vLLM refuses, or lacks: it shows nothing of a check."""
    try:
        yield
    except (AdapterDrift, Exception) as error:
        into.not_run[f"{type(error).__name__}: {error}".splitlines()[0]] += 1


Driver = Callable[[int, int, Counted], None]
"""Makes runs of one kind: the part of this number, with so many runs."""


def episodes_of_clusters(seed: int, runs: int, into: Counted) -> None:
    """Random episodes, one of each cluster. Nothing ends one early."""
    from kvproof.gate.difference.judged import driven
    from kvproof.gate.difference.workload import Episodes
    from kvproof.gate.side.unmade import made
    from kvproof.live.known.registry import KNOWN
    from kvproof.strategies.sampling.wide import random_clusters

    known = KNOWN.values()
    for cluster in islice(random_clusters(seed, live=True), runs):
        with refusals(into):
            driven(Episodes("", cluster, seed, 1, STEPS), made, CHECKS.values(), known)


def plans_for_connectors(seed: int, runs: int, into: Counted) -> None:
    """Random plans for one connector. The first plan that is drawn is the simplest one, whatever
    the seed, so each part has several for its connector. Nothing ends an episode early."""
    from kvproof.gate.connectors.search import PlanSearch
    from kvproof.live.connectors.accepted import accepted
    from kvproof.live.connectors.drawn import draw_plans
    from kvproof.live.connectors.episode import play
    from kvproof.live.connectors.shipped import SHIPPED
    from kvproof.model.plans.connector import ConnectorPlan

    subject = [*SHIPPED.values()][seed % len(SHIPPED)].subject

    def take(plan: ConnectorPlan) -> None:
        with refusals(into):
            play(subject, plan, lambda *_: True)

    with refusals(into):
        draw_plans(subject, accepted(subject, PlanSearch()), runs, seed, take)


def engines(seed: int, runs: int, into: Counted) -> None:
    """Random engines, with the messages to their loops."""
    from kvproof.gate.side import around_scheduler

    for number in range(seed * runs, (seed + 1) * runs):
        with refusals(into):
            for seen in around_scheduler.taken(random_engine(number)):
                for _ in around_scheduler.broken(seen, Tally()):
                    pass


DRIVERS: dict[str, Driver] = {
    "clusters": episodes_of_clusters,
    "plans": plans_for_connectors,
    "engines": engines,
}


def counted(kind: str, seed: int, folder: Path) -> Counted:
    """The counts of one part of the runs; kept ones where there are any."""
    file = folder / f"{kind}-{seed}.json"
    if not file.exists():
        made = nothing()
        with counting(made):
            DRIVERS[kind](seed, PART, made)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(made.as_data(), indent=1), encoding="utf-8")
        part.replace(file)
    kept = json.loads(file.read_text(encoding="utf-8"))
    excused = Counter({(check, says): times for check, says, times in kept["excused"]})
    return Counted(Counter(kept["judged"]), excused, Counter(kept["not_run"]))


def all_counted(runs: int, seed: int, folder: Path) -> Counted:
    """The counts of all runs."""
    total = nothing()
    kinds = [kind for kind, parts in OF_TEN.items() for _ in range(parts)]
    numbers = {kind: count(seed) for kind in OF_TEN}
    parts = max(1, runs // PART)
    for number, kind in enumerate(islice(cycle(kinds), parts), 1):
        print(f"part {number} of {parts}: {PART} {kind}", flush=True)
        total.update(counted(kind, next(numbers[kind]), folder))
    return total


class Source(NamedTuple):
    """What the source of a check names: its excuses, and how often it says that something cannot be
    judged."""

    excuses: tuple[Excuse, ...]
    not_judged: int


def source_of(check: Check) -> Source:
    """The excuses that a check names, in its own source and in that of what it calls."""
    found: dict[Excuse, None] = {}
    not_judged = 0
    todo, seen = [inspect.unwrap(check.function)], set[Any]()
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        text = textwrap.dedent(inspect.getsource(function))
        not_judged += text.count(CANNOT)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found.update(dict.fromkeys(_excuse_of(node, function)))
            value = _named(node, function)
            if isinstance(value, Excuse):
                found[value] = None
            elif isinstance(value, Mapping):
                found.update(dict.fromkeys(e for e in value.values() if isinstance(e, Excuse)))
            elif isinstance(value, FunctionType) and "invariants" in value.__module__:
                todo.append(inspect.unwrap(value))
    return Source(tuple(found), not_judged)


def _named(node: ast.AST, function: Any) -> Any:
    """The value of a name of the module of a function; None for anything else."""
    return function.__globals__.get(node.id) if isinstance(node, ast.Name) else None


def _excuse_of(call: ast.Call, function: Any) -> Iterator[Excuse]:
    """The excuse that a call makes, if it makes one."""
    kind = call.func.id if isinstance(call.func, ast.Name) else ""
    if kind == "choice" or kind == "release":
        says = call.args[0]
        text = says.value if isinstance(says, ast.Constant) else _named(says, function)
        if isinstance(text, str):
            yield Excuse(kind, text)


def asked_in(check: Check) -> str:
    """The kinds of runs in which a check is asked."""
    facts = set(get_args(Fact))
    kinds = {
        "clusters": {Engine, State, Step, Ending},
        "plans": facts,
        "engines": {Startup, Played},
    }
    return ", ".join(kind for kind, types in kinds.items() if types & set(check.judged))


def page(total: Counted, runs: int, vllm: str) -> str:
    """The page."""
    not_run = sum(total.not_run.values())
    lines = [HEAD, f"{runs:,} runs of vLLM {vllm}, {date.today()}; {not_run} could not be made.\n"]
    lines += ["| check | sentence | asked in | judged | excused | excuses | not judged |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [row(check, total) for check in sorted(FOUND.values(), key=lambda each: each.id)]
    if total.not_run:
        lines += ["", "## Runs that could not be made", ""]
        lines += [f"- {why} ({times})" for why, times in sorted(total.not_run.items())]
    return "\n".join(lines) + "\n"


def row(check: Check, total: Counted) -> str:
    """The line of one check."""
    source = source_of(check)
    seen = {says: times for (name, says), times in total.excused.items() if name == check.id}
    excuses = "<br>".join(
        f"{excuse.kind}: {excuse.says} ({seen.get(excuse.says, 0):,})" for excuse in source.excuses
    )
    name = f"`{check.id}`" + (" (ideal)" if check.ideal else "")
    return (
        f"| {name} | {check.name} | {asked_in(check)} | {total.judged[check.id]:,} "
        f"| {sum(seen.values()):,} | {excuses} | {source.not_judged or ''} |"
    )


def main() -> int:
    """Drive what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder for the counts")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--vllm", help="a vLLM as for kvproof gate (default: the installed one)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    from kvproof.cli.machines import borrow

    borrow(args.vllm, None, live=True)
    from vllm import __version__

    total = all_counted(args.runs, args.seed, args.results)
    PAGE.write_text(page(total, args.runs, __version__), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
