"""The table of shipped connectors and checks of the contract, for one or more vLLMs.

    python benchmarks/connectors.py --vllm PATH --vllm PATH

It writes the tables of `reports/connectors.md`; what was written by hand below them stays.

Each vLLM has a process, in which each connector is driven with several seeds. A check holds if
no episode breaks it and something was judged. A search ends at what it finds, so the cells beside a
finding count what was judged up to it.
"""

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

TITLE = "# Shipped connectors and the contract"
HOW = """
Each connector that vLLM ships is driven by the [connector kit](../docs/howto/test-a-connector.md):
the real engine core, both real sides of the connector, KV caches of real shapes on a CPU. The
number beside *holds* is what was compared or asked. `benchmarks/connectors.py` makes the tables.
"""
PAGE = Path(__file__).parents[1] / "reports" / "connectors.md"
WRITTEN_BY_HAND = "## The findings, looked at in the source"
"""What stands in the page from this line on is kept."""


def one(vllm: str | None, seeds: int, examples: int) -> dict[str, Any]:
    """The results in this process: for each connector what was judged, and what was found."""
    from kvproof.cli.machines import borrow

    borrow(vllm, None, live=True)
    from vllm import __version__

    from kvproof.gate.connectors.search import search
    from kvproof.live.connectors.shipped import SHIPPED

    results: dict[str, Any] = {}
    for name, shipped in SHIPPED.items():
        print(name, file=sys.stderr, flush=True)
        judged: Counter[str] = Counter()
        times: Counter[str] = Counter()
        findings: dict[str, str] = {}
        try:
            for seed in range(seeds):
                found = search(shipped.subject, examples, seed, shrinks=False)
                judged += found.judged
                times += found.times_judged
                for each in found.breaks:
                    why = "; ".join(each.finding.sentences)
                    findings.setdefault(each.signature.check, why)
                for rule in found.tolerated:
                    findings.setdefault(rule, "seen, and not grave")
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            continue
        results[name] = {"judged": judged, "times": times, "findings": findings}
    return {"version": __version__, "results": results}


def cell(check: Any, result: dict[str, Any]) -> str:
    """What one vLLM's connector did about a check."""
    from kvproof.live.connectors.judging import subjects

    if "error" in result:
        return f"not judged: {result['error']}"
    if check.id in result["findings"]:
        return f"**finding**: {result['findings'][check.id].replace('|', '/')}"
    if count := result["times"].get(check.id, 0):
        return f"holds ({count:,})"
    seen = any(result["judged"].get(name) for name in subjects(check))
    what = " or ".join(subjects(check))
    return f"not judged: nothing to judge in its {what}" if seen else f"not judged: no {what}"


def page(runs: list[dict[str, Any]]) -> str:
    """The page."""
    from kvproof.live.connectors.judging import CONTRACT
    from kvproof.live.connectors.shipped import SHIPPED

    lines = [TITLE, HOW]
    for name, shipped in SHIPPED.items():
        extra = json.dumps(shipped.subject.extra)
        lines += [f"## {name}", "", f"`{shipped.subject.name}` with `{extra}`", ""]
        lines.append("| rule | " + " | ".join(run["version"] for run in runs) + " |")
        lines.append("|---|" + "---|" * len(runs))
        for check in CONTRACT.values():
            cells = (cell(check, run["results"][name]) for run in runs)
            lines.append(f"| `{check.id}` | " + " | ".join(cells) + " |")
        lines.append("")
    by_hand = PAGE.read_text(encoding="utf-8").partition(WRITTEN_BY_HAND)
    return "\n".join(lines) + "\n" + "".join(by_hand[1:])


def main() -> None:
    """Run a process for each vLLM, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", action="append", metavar="WHICH")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100)
    args = parser.parse_args()
    trees = args.vllm or [None]
    with ProcessPoolExecutor(len(trees), get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = [*pool.map(one, trees, repeat(args.seeds), repeat(args.examples))]
    PAGE.write_text(page(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
