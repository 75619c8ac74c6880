"""What no run of a gate sees of a vLLM: what to drive next.

    python -m benchmarks.pull_requests.unseen --vllm SITE_PACKAGES --results FOLDER [--budget S]

The gate compares the vLLM with one in which each function of the accounting has a statement without
effect, and each condition stands in `bool()`. So it says which functions no run executes, and which
conditions had one outcome in all runs. Its output is kept in the folder. A longer budget leaves
less to chance. Exit code: 0 done, 2 bad usage.
"""

import argparse
import ast
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks import kept
from benchmarks.planted.mistakes import tree_with
from benchmarks.pull_requests.unchanged import CONNECTORS, Function

PARTS = (
    *("vllm/v1/core", "vllm/v1/engine/core.py", "vllm/v1/kv_offload", "vllm/v1/simple_kv_offload"),
    *(f"{CONNECTORS}/{part}" for part in ("nixl", "offloading", "mooncake", "multi_connector.py")),
)
BUDGET_S = 1200


def altered(source: str) -> str:
    """A source that does the same, in which each function and each condition is another one."""
    lines = source.splitlines(keepends=True)
    for first in _first_statements(ast.parse(source)):
        decorators = getattr(first, "decorator_list", ())
        begin = min((each.lineno for each in decorators), default=first.lineno)
        lines.insert(begin - 1, " " * first.col_offset + "_nothing = 0\n")
    source = "".join(lines)
    encoded = [line.encode() for line in lines]
    tests = [node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If)]
    ends = [(each.end_lineno or 0, each.end_col_offset or 0, b")") for each in tests]
    begins = [(each.lineno, each.col_offset, b"bool(") for each in tests]
    for number, column, text in sorted(ends + begins, reverse=True):
        line = encoded[number - 1]
        encoded[number - 1] = line[:column] + text + line[column:]
    return b"".join(encoded).decode()


def _first_statements(tree: ast.Module) -> list[ast.stmt]:
    """The first statement of each function after its docstring, the last one first, where it has a
    line of its own."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    bodies = [(each, each.body[ast.get_docstring(each) is not None :]) for each in functions]
    found = [body[0] for each, body in bodies if body and body[0].lineno > each.lineno]
    return sorted(found, key=lambda each: -each.lineno)


def main() -> int:
    """Run the gate, and print what it has not seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True, help="a site-packages folder with vLLM")
    parser.add_argument("--results", type=Path, required=True, help="the folder for the output")
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="of the gate, in seconds")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    out: Path = args.results / "unseen.json"
    if not out.exists():
        tree: Path = args.results / "tree"
        found = (args.vllm / part for part in PARTS)
        files = [f for each in found for f in (each.rglob("*.py") if each.is_dir() else [each])]
        names = [str(file.relative_to(args.vllm / "vllm")) for file in sorted(files)]
        for name in names:
            source = altered((args.vllm / "vllm" / name).read_text(encoding="utf-8"))
            if name == names[0]:
                tree_with(args.vllm / "vllm", tree, name, source)
                continue
            (tree / "vllm" / name).unlink()  # a link to the file of the original
            (tree / "vllm" / name).write_text(source, encoding="utf-8")
        options = ["--vllm", tree, "--base", args.vllm, "--budget", args.budget]
        kept.write(out, kept.gate(*options, traces=args.results / "traces"))
        shutil.rmtree(tree)
    answer = json.loads(out.read_text(encoding="utf-8"))
    by_file: dict[str, list[str]] = defaultdict(list)
    for each in answer["functions"]:
        file, _, function = each["function"].partition(":")
        one_sided = [what.replace(" of base", "") for what in each["not_seen"] if "of base" in what]
        if not each["runs"]:
            by_file[file].append(f"{function}: not executed")
        by_file[file] += [f"{function}, {what}: one outcome" for what in one_sided if each["runs"]]
    for file, unseen in sorted(by_file.items()):
        print(f"{file}: {len(unseen)}", *(f"  {each}" for each in unseen), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
