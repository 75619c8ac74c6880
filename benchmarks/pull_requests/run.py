"""The gate on real pull requests of vLLM.

    python benchmarks/pull_requests/run.py --repo CLONE --results FOLDER [--only COMMIT ...]

`commits.json` lists commits. One that `mends` a defect is base, and its parent is head: a pull
request that introduces the defect. One that `introduces` a defect and one that is `harmless` is
head, and its parent is base. Each gate is a process of its own; its output is kept in the folder,
so a run that was stopped continues. `table.py` makes reports/pull_requests.md from the folder. Exit
code: 0 all were run, 2 bad usage.
"""

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from benchmarks import kept  # noqa: E402

BUDGET_S = 300


def commits(only: list[str]) -> list[dict[str, Any]]:
    """The entries of the list, or those of these commits."""
    found = json.loads((HERE / "commits.json").read_text(encoding="utf-8"))
    return [one for one in found if not only or any(one["commit"].startswith(c) for c in only)]


def name(entry: dict[str, Any]) -> str:
    """The name of an entry, and of the file with its result."""
    return f"{entry['kind']}-{entry['commit']}"


def gate(entry: dict[str, Any], args: argparse.Namespace) -> None:
    """Run the gate on an entry, and keep its output."""
    out: Path = args.results / f"{name(entry)}.json"
    if out.exists():
        return
    commit = entry["commit"]
    base, head = (commit, f"{commit}^") if entry["kind"] == "mends" else (f"{commit}^", commit)
    options = ["--repo", args.repo, "--base", base, "--head", head, "--budget", args.budget]
    answer = kept.gate(*options, "--seed", args.seed, traces=args.results / name(entry))
    kept.write(out, answer | {"date": date.today().isoformat()})
    found = sorted(
        {f["invariant"] for f in answer.get("findings", ()) if f["kind"] == "introduced"}
    )
    seconds = answer.get("seconds", 0)
    print(
        f"{name(entry):24} {answer['verdict']:10} {seconds:6.1f} s  {', '.join(found)}", flush=True
    )


def main() -> int:
    """Run the gate on all entries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repo", type=Path, required=True, help="a git clone of vLLM")
    parser.add_argument("--results", type=Path, required=True, help="the folder for the outputs")
    parser.add_argument("--only", nargs="+", default=[], metavar="COMMIT")
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="of each gate, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    for entry in commits(args.only):
        gate(entry, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
