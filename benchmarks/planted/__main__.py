"""Planted changes of vLLM, each gated against vLLM as released: what the gate tells.

    python -m benchmarks.planted --results FOLDER [--kind KIND ...] [--only NAME ...] [--seed N]
    python -m benchmarks.planted --list
    python -m benchmarks.planted --page

Each gate is a process of its own. Its whole answer is kept in the folder, and what the page needs
of it in answers.json, so a run that was stopped continues: what has an answer is not gated again,
unless it was changed or `--again` is given. A gate that had less processor time than its budget and
ended as UNKNOWN has no answer: it says more of the machine than of the gate. `--page` writes
reports/planted.md from answers.json and runs nothing. Exit code: 0 all that were asked for are run,
2 bad usage.
"""

import argparse
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

from benchmarks import kept
from benchmarks.planted import answers, page
from benchmarks.planted.chooser import KINDS, installed
from benchmarks.planted.mistakes import Mistake, mistakes, plant

ROOT = Path(__file__).parents[2]
BUDGET_S = 300
COMMIT = ["git", "log", "-1", "--format=%h", "--", "gate", "invariants", "live"]
"""Prints the last commit that changes what judges."""


def gate(mistake: Mistake, args: argparse.Namespace) -> kept.Answer:
    """The gate's answer to a planted change."""
    folder = args.results / mistake.name.replace("/", "-")
    tree = folder.with_name(f"{folder.name}-tree")
    package = installed()
    plant(mistake, package, tree)
    options = ["--vllm", tree, "--base", package.parent, "--budget", args.budget]
    answer = kept.gate(*options, "--seed", args.seed, traces=folder)
    kept.write(folder.with_suffix(".json"), answer)
    shutil.rmtree(tree)
    return answer


def asked_for(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Mistake]:
    """The planted changes that were named, or all."""
    found = [each for each in mistakes() if each.kind in args.kind]
    if wrong := set(args.only) - {each.name for each in found}:
        parser.error(f"no planted change: {', '.join(sorted(wrong))}. Use --list to see them.")
    return [each for each in found if not args.only or each.name in args.only]


def run(found: list[Mistake], args: argparse.Namespace) -> None:
    """Gate each planted change that has no answer yet."""
    commit = subprocess.check_output(COMMIT, text=True, cwd=ROOT).strip()
    args.results.mkdir(parents=True, exist_ok=True)
    for number, mistake in enumerate(found, 1):
        place = f"{number:3} of {len(found)}  {mistake.name:48}"
        answer = None if args.again else answers.of(mistake)
        if answer is None:
            print(f"{place} begins", flush=True)
            made = gate(mistake, args)
            with_what = {"date": date.today().isoformat(), "kvproof": commit, "seed": args.seed}
            answer = answers.keep(mistake, made | with_what)
        short = ", too little processor time: no answer" if answers.starved(answer) else ""
        print(f"{place} {answer['verdict']:10} {answer['seconds']:6.1f} s{short}", flush=True)


def main() -> int:
    """Run what is missing, list the planted changes, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="the folder for the whole answers")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="of each gate, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="gate also what has an answer")
    parser.add_argument("--list", action="store_true", help="print the planted changes")
    parser.add_argument("--page", action="store_true", help="write reports/planted.md")
    args = parser.parse_args()
    found = asked_for(args, parser)
    if args.list:
        for mistake in found:
            print(f"{mistake.name:48} {mistake.about}")
    elif args.page:
        page.write(ROOT / "reports" / "planted.md")
    elif args.results is None:
        parser.error("no folder for the answers. Use --results FOLDER.")
    else:
        run(found, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
