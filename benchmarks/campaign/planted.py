"""Steps until each planted mistake of live vLLM is found, by four searches with the same clusters.

    kvproof campaign --machine live --seed 1000 --units 200 --out released
    python benchmarks/campaign/planted.py --given released --seeds 3 --steps 3000 --out killed.jsonl
    python benchmarks/campaign/planted.py --steps 3000 --table killed.jsonl

- `fresh`: random episodes, as `kvproof sample` makes them
- `target`: the same, with `hypothesis.target` on the number of behaviours of an episode
- `corpus`: a campaign that begins with nothing
- `given`: a campaign that begins with the corpus of one on vLLM as released, of another seed

A mistake counts as found with the first finding that no known deviation of the released vLLM
explains. A search ends there, or after the budget of steps. One line of JSON for each search.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from kvproof.campaign.behaviours import behaviours
from kvproof.campaign.carry_out import CHOICES, Make, carry_out
from kvproof.campaign.folder import CampaignFolder
from kvproof.campaign.plan import UNIT_STEPS, Plan, round_of
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import CorpusEntry, WorkUnit
from kvproof.cli.machines import maker
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.episode import CacheMachine, Target
from tests import mistakes, mistakes_of_drafts

MISTAKES = mistakes.MISTAKES | mistakes_of_drafts.MISTAKES

TARGET_EPISODES = 20
"""Hypothesis begins to climb after ten episodes."""


class Killed(BaseException):
    """The first finding of a search. Nothing catches it before the search does."""


class Steps:
    """Counts the steps of all runs, and ends the search at the first finding of a check that is not
    `known` to fail on vLLM as released."""

    def __init__(self, patch: pytest.MonkeyPatch, known: frozenset[str]) -> None:
        self.taken = 0
        take_one, fail = Run.take_one, Run.fail

        def counted(run: Run, event: Event) -> None:
            self.taken += 1
            take_one(run, event)

        def killed(run: Run, *findings: Finding) -> None:
            try:
                fail(run, *findings)
            except Violated as violated:
                if violated.finding.invariant in known:
                    raise
                raise Killed(violated.finding.invariant) from None

        patch.setattr(Run, "take_one", counted)
        patch.setattr(Run, "fail", killed)


def fresh(make: Make, seed: int) -> Iterator[None]:
    """The fresh units of a campaign."""
    plan = Plan(seed, True)
    for number in count():
        carry_out(WorkUnit(number, "fresh", plan.cluster(number), seed + number, UNIT_STEPS), make)
        yield


def campaign(make: Make, seed: int, given: Sequence[CorpusEntry] = ()) -> Iterator[Progress]:
    """A campaign with one worker."""
    plan, progress = Plan(seed, True, given), Progress()
    for number in count():
        unit = plan.unit(number, progress)
        result = carry_out(unit, make)
        if result.error:
            raise RuntimeError(result.error)
        progress.merge(unit, result)
        if progress.units == round_of(number)[1]:
            progress.end_round()
        yield progress


class Climbing(CacheMachine):
    """An episode that reports how much it shows."""

    def teardown(self) -> None:
        """End the episode."""
        super().teardown()
        shown = set(behaviours(self.run.machine.cluster, self.run.steps))
        hypothesis.target(float(len(shown)), label="behaviours")


def targeted(make: Make, seed: int) -> Iterator[None]:
    """Hypothesis with targets, some episodes of one cluster after the other."""
    plan = Plan(seed, True)
    settings = hypothesis.settings(
        max_examples=TARGET_EPISODES,
        stateful_step_count=CHOICES,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.target],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )
    for number in count():
        target = Target(plan.cluster(number), make)

        @hypothesis.seed(seed * 100_000 + number)
        def episode(target: Target = target) -> CacheMachine:
            return Climbing(target)

        with suppress(Flaky):
            run_state_machine_as_test(episode, settings=settings)  # type: ignore[arg-type]
        yield


def measure(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """All searches."""
    make = maker("live").search
    make(CLUSTERS["full"])  # reads what vLLM as released does
    released = CampaignFolder(args.given).state().progress
    given = released.corpus
    known = frozenset(each.signature.check for each in released.found)
    searches: dict[str, Callable[[int], Iterator[object]]] = {
        "fresh": lambda seed: fresh(make, seed),
        "target": lambda seed: targeted(make, seed),
        "corpus": lambda seed: campaign(make, seed),
        "given": lambda seed: campaign(make, seed, given),
    }
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name, mistake in MISTAKES.items():
            for method in args.methods:
                steps, by = killed(mistake, searches[method](seed), args.steps, known)
                yield {"mistake": name, "method": method, "seed": seed, "steps": steps, "by": by}


def killed(
    mistake: mistakes.Mistake, search: Iterator[object], budget: int, known: frozenset[str]
) -> tuple[int, str | None]:
    """The steps that a search took, and the check that found the mistake; None if the budget ended
    first."""
    with pytest.MonkeyPatch.context() as patch:
        mistake.patch(patch)
        steps = Steps(patch, known - {mistake.finds})
        try:
            while steps.taken < budget:
                next(search)
        except Killed as by:
            return steps.taken, str(by)
    return steps.taken, None


def table(path: Path, budget: int) -> None:
    """Print the medians over the seeds. A search that found nothing
    counts as the budget."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    print(f"| mistake | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
    medians: dict[str, list[float]] = {method: [] for method in methods}
    for name in dict.fromkeys(row["mistake"] for row in rows):
        cells = []
        for method in methods:
            of = [r for r in rows if (r["mistake"], r["method"]) == (name, method)]
            if not of:
                continue
            middle = statistics.median(r["steps"] if r["by"] else budget for r in of)
            medians[method].append(middle)
            missed = sum(row["by"] is None for row in of)
            cells.append(f"{middle:,.0f}" + (f" (not in {missed} of {len(of)})" if missed else ""))
        print(f"| `{name}` | {' | '.join(cells)} |")
    for label, of_all in ("median", statistics.median), ("mean", statistics.mean):
        print(f"| {label} of all | {' | '.join(f'{of_all(m):,.0f}' for m in medians.values())} |")
    for method in methods:
        of = [row for row in rows if row["method"] == method]
        print(f"{method}: found in {sum(r['by'] is not None for r in of)} of {len(of)} searches")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--methods", nargs="+", default=["fresh", "target", "corpus", "given"])
    parser.add_argument("--given", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if args.table:
        table(args.table, args.steps)
        return
    for row in measure(args):
        line = json.dumps(row)
        print(line, flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
