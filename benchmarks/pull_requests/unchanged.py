"""The gate on vLLMs without a real change: one function has a statement without effect.

    python -m benchmarks.pull_requests.unchanged --vllm SITE_PACKAGES --results FOLDER [--gates N]

To the gate, such a function is changed, and has to be driven. None may be red. Each gate is a
process of its own; its output is kept in the folder, so a run that was stopped continues. Gate n is
always the same function. Exit code: 0 none is red, 1 one is, 2 bad usage.
"""

import argparse
import ast
import json
import random
import shutil
import statistics
import sys
from pathlib import Path

from benchmarks import kept
from benchmarks.planted.mistakes import tree_with

CONNECTORS = "vllm/distributed/kv_transfer/kv_connector/v1"
ACCOUNTING = ("vllm/v1/core", f"{CONNECTORS}/nixl", f"{CONNECTORS}/offloading")
"""Folders of what kvproof drives: a change of other connectors is UNKNOWN at once."""
GATES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def candidates(vllm: Path) -> list[tuple[Path, Function]]:
    """All functions of the accounting, in a fixed order."""
    found: list[tuple[Path, Function]] = []
    for path in sorted(p for part in ACCOUNTING for p in (vllm / part).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = (node for node in ast.walk(tree) if isinstance(node, Function))
        found += [(path.relative_to(vllm), node) for node in nodes if _has_room(node)]
    return found


def _has_room(function: Function) -> bool:
    """Whether the last statement stands in a line of its own, and defines nothing."""
    first, last = function.body[0], function.body[-1]
    return first.lineno < last.lineno and not isinstance(last, Function | ast.ClassDef)


def idled(source: str, function: Function) -> str:
    """A source in which a function has a statement without effect before its last one."""
    lines = source.splitlines(keepends=True)
    last = function.body[-1]
    indent = " " * last.col_offset
    return "".join(
        [*lines[: last.lineno - 1], f"{indent}_nothing = 0\n", *lines[last.lineno - 1 :]]
    )


def gate(number: int, args: argparse.Namespace) -> kept.Answer:
    """The answer of the gate on the tree of this number; a kept one where there is one."""
    out: Path = args.results / f"{number}.json"
    if not out.exists():
        path, function = random.Random(number).choice(candidates(args.vllm))
        tree = args.results / f"{number}-tree"
        source = idled((args.vllm / path).read_text(encoding="utf-8"), function)
        tree_with(args.vllm / "vllm", tree, str(path.relative_to("vllm")), source)
        options = ["--vllm", tree, "--base", args.vllm]
        answer = kept.gate(*options, traces=args.results / f"{number}")
        kept.write(out, answer | {"tree": f"{path}:{function.name}"})
        shutil.rmtree(tree)
    answer = json.loads(out.read_text(encoding="utf-8"))
    seconds = answer.get("seconds", 0)
    print(f"{number:3} {answer['verdict']:10} {seconds:6.1f} s  {answer['tree']}", flush=True)
    return answer


def main() -> int:
    """Run the gates, and print how many gave which verdict, and the median of the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True, help="a site-packages folder with vLLM")
    parser.add_argument("--results", type=Path, required=True, help="the folder for the outputs")
    parser.add_argument("--gates", type=int, default=GATES)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    answers = [gate(number, args) for number in range(args.gates)]
    verdicts = [a["verdict"] for a in answers]
    counts = {v: verdicts.count(v) for v in sorted(set(verdicts))}
    seconds = [a.get("seconds", 0) for a in answers]
    print(f"{counts}, median {statistics.median(seconds):.0f} s, at most {max(seconds):.0f} s")
    return int("VIOLATED" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
