"""What each search shows of vLLM as released in so many steps: abstract steps, pairs of them, and
branches of `vllm.v1.core`.

    python benchmarks/campaign/shown.py --given released --seeds 10 --steps 3000 --out shown.jsonl
    python benchmarks/campaign/shown.py --given released --methods atheris --out shown.jsonl
    python benchmarks/campaign/shown.py --table shown.jsonl

`searches.py` has the searches. Plans of connectors, start-ups and loops are left out: they have no
steps that could be counted. One line of JSON for each search.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import coverage
import pytest
from child import Done, in_child
from searches import SEARCHES, follow_branches

from kvproof.campaign import carry_out
from kvproof.campaign.behaviours import PAIR, STEP, behaviours, kind
from kvproof.campaign.folder import CampaignFolder
from kvproof.campaign.unit import UnitResult
from kvproof.cli.machines import maker
from kvproof.model.events import Event
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run

SEEN = {"abstract steps": STEP, "pairs of them": PAIR}


def count_what_is_shown(budget: int, done: Done) -> None:
    """Count what all runs show from now on. The search is `done` after the budget."""
    taken, seen = 0, set[str]()
    take_one = Run.take_one
    followed = coverage.Coverage(branch=True, data_file=None, include=[f"{_core()}/*"])

    def counted(run: Run, event: Event) -> None:
        nonlocal taken
        if taken >= budget:
            followed.stop()
            shown = {name: sum(kind(b) == of for b in seen) for name, of in SEEN.items()}
            done(shown | {"branches": _branches(followed)})
        taken += 1
        take_one(run, event)
        seen.update(behaviours(run.machine.cluster, run.steps[-2:]))

    patch = pytest.MonkeyPatch()
    patch.setattr(Run, "take_one", counted)
    patch.setattr(carry_out, "carry_out_plans", lambda unit: UnitResult(number=unit.number))
    followed.start()


def _core() -> Path:
    import vllm.v1.core

    return Path(vllm.v1.core.__file__).parent


def _branches(followed: coverage.Coverage) -> int:
    """The exits that were taken of lines with more than one."""
    files = followed.get_data().measured_files()
    return sum(taken for file in files for _, taken in followed.branch_stats(file).values())


def measure(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """All searches."""
    if "atheris" in args.methods:
        follow_branches()
    make = maker("live").search
    make(CLUSTERS["full"])
    corpus = CampaignFolder(args.given).state().progress.corpus
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for method in args.methods:

            def search(done: Done, seed: int = seed, method: str = method) -> None:
                count_what_is_shown(args.steps, done)
                SEARCHES[method](make, seed, corpus)

            yield {"method": method, "seed": seed} | in_child(search)


def table(_args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Print the medians over the seeds."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    print(f"| seen | {' | '.join(methods)} |\n|{'---|' * (len(methods) + 1)}")
    for name in (*SEEN, "branches"):
        of = [[row[name] for row in rows if row["method"] == method] for method in methods]
        print(f"| {name} | {' | '.join(f'{statistics.median(each):,.0f}' for each in of)} |")


if __name__ == "__main__":
    command.run(__doc__, measure, table)
