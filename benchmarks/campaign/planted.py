"""Steps until each planted mistake of live vLLM is found, by searches with the same clusters.

    kvproof campaign --machine live --seed 1000 --units 200 --out released
    python benchmarks/campaign/planted.py --given released --seeds 3 --steps 3000 --out killed.jsonl
    python benchmarks/campaign/planted.py --given released --methods atheris --out killed.jsonl
    python benchmarks/campaign/planted.py --steps 3000 --table killed.jsonl

`searches.py` has the searches. A mistake counts as found with the first finding that no known
finding of the released vLLM explains. A search ends there, or after the budget of steps. One line
of JSON for each search.
"""

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

import command
import pytest
from child import Done, in_child
from searches import SEARCHES, follow_branches

from kvproof.campaign.folder import CampaignFolder
from kvproof.cli.machines import maker
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run, Violated
from tests.mistakes import TOLD, Mistake


def count_steps(budget: int, known: frozenset[str], done: Done) -> None:
    """Count the steps of all runs from now on. The search is `done` after the budget, and at the
    first finding of a check that is not `known` to fail on vLLM as released."""
    taken = 0
    take_one, fail = Run.take_one, Run.fail

    def counted(run: Run, event: Event) -> None:
        nonlocal taken
        if taken >= budget:
            done({"steps": taken, "by": None})
        taken += 1
        take_one(run, event)

    def found(run: Run, *findings: Finding) -> None:
        try:
            fail(run, *findings)
        except Violated as violated:
            if violated.finding.invariant not in known:
                done({"steps": taken, "by": violated.finding.invariant})
            raise

    patch = pytest.MonkeyPatch()
    patch.setattr(Run, "take_one", counted)
    patch.setattr(Run, "fail", found)


def measure(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """All searches."""
    if "atheris" in args.methods:
        follow_branches()
    make = maker("live").search
    make(CLUSTERS["full"])  # reads what vLLM as released does
    released = CampaignFolder(args.given).state().progress
    known = frozenset(each.signature.check for each in released.found)
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name, mistake in TOLD.items():
            for method in args.methods:

                def search(
                    done: Done,
                    seed: int = seed,
                    method: str = method,
                    mistake: Mistake = mistake,
                ) -> None:
                    mistake.patch(pytest.MonkeyPatch())
                    count_steps(args.steps, known - {mistake.finds}, done)
                    SEARCHES[method](make, seed, released.corpus)

                yield {"mistake": name, "method": method, "seed": seed} | in_child(search)


def table(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Print the medians over the seeds. A search that found nothing
    counts as the budget."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    print(f"| mistake | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
    medians: dict[str, list[float]] = {method: [] for method in methods}
    for name in dict.fromkeys(row["mistake"] for row in rows):
        cells = []
        for method in methods:
            of = [r for r in rows if (r["mistake"], r["method"]) == (name, method)]
            if not of:
                continue
            middle = statistics.median(r["steps"] if r["by"] else args.steps for r in of)
            medians[method].append(middle)
            missed = sum(row["by"] is None for row in of)
            cells.append(f"{middle:,.0f}" + (f" (not in {missed} of {len(of)})" if missed else ""))
        print(f"| `{name}` | {' | '.join(cells)} |")
    for label, of_all in ("median", statistics.median), ("mean", statistics.mean):
        print(f"| {label} of all | {' | '.join(f'{of_all(m):,.0f}' for m in medians.values())} |")
    for method in methods:
        of = [row for row in rows if row["method"] == method]
        print(f"{method}: found in {sum(r['by'] is not None for r in of)} of {len(of)} searches")


if __name__ == "__main__":
    command.run(__doc__, measure, table)
