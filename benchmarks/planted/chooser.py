"""Which functions of vLLM a mistake is planted in: a draw by a seed.

    python -m benchmarks.planted.chooser --kind losses --first 40

Drawn are functions of what kvproof drives whose name no finding, no fault and no mistake of the
tests has: nobody has fitted a check to them. `mistakes.json` says for each drawn function, in this
order, what is planted there, or why nothing is.
"""

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CONNECTORS = "distributed/kv_transfer/kv_connector/v1"

DRIVEN = (
    *("v1/core/*.py", "v1/core/sched/*.py", "v1/engine/core.py"),
    *(f"{CONNECTORS}/nixl/*scheduler.py", f"{CONNECTORS}/nixl/*worker.py"),
    *(f"{CONNECTORS}/offloading/{name}.py" for name in ("events", "scheduler", "worker", "common")),
    *(f"{CONNECTORS}/mooncake/store/{name}.py" for name in ("coordinator", "data", "scheduler")),
    *(f"{CONNECTORS}/mooncake/store/{name}.py" for name in ("connector", "worker")),
    *(f"{CONNECTORS}/multi_connector.py", f"{CONNECTORS}/example_*.py"),
    *(f"v1/kv_offload/cpu/{name}.py" for name in ("manager", "spec")),
    *(f"v1/kv_offload/tiering/{name}.py" for name in ("async_lookup", "backpressure", "manager")),
    "v1/simple_kv_offload/manager.py",
)
"""The files that decide what is held, hit, scheduled and moved, and that a run of kvproof can
reach, below the package. Tensors, metrics and factories are left out."""

UNDRIVEN = ("DP*", "*Actor*", "HiSparse*", "*Diffusion*", "*Metrics*", "*Stats")
"""Classes that need several processes, a device or a model that nobody has here, or that count for
a page of metrics."""

TOUCHED = (
    *("findings/**/*", "model/faults/*.py", "tests/**/mistakes*.py", "tests/**/planted*.py"),
    *("tests/**/planting.py", "tests/**/test_mistakes*.py", "tests/reference/lists.py"),
)
"""What names the functions that findings, faults and planted mistakes are about."""

STATEMENTS_MIN = 3
"""A function with fewer statements leaves nothing to change."""

KINDS = ("losses", "hidden", "policies", "masked")


class Function(NamedTuple):
    """A function of vLLM: its file below the package, and its name with those of its classes."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@cache
def functions(package: Path) -> tuple[Function, ...]:
    """All functions that may be drawn, in a fixed order."""
    return tuple(_functions(package))


def _functions(package: Path) -> Iterator[Function]:
    named = touched()
    files = {file for pattern in DRIVEN for file in package.glob(pattern)}
    for file in sorted(files):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name, node in _functions_in(tree, ()):
            size = sum(isinstance(part, ast.stmt) for part in ast.walk(node)) - 1
            if size >= STATEMENTS_MIN and name[-1] not in named and not _is_left_out(name):
                yield Function(str(file.relative_to(package)), ".".join(name))


def _is_left_out(name: tuple[str, ...]) -> bool:
    """Whether a function is not drawn: a special method, or one of a class that nobody drives."""
    *classes, last = name
    undriven = (fnmatch(each, pattern) for each in classes for pattern in UNDRIVEN)
    return last.startswith("__") or any(undriven)


Node = ast.FunctionDef | ast.AsyncFunctionDef


def _functions_in(node: ast.AST, of: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """The functions in a module or a class, with their names; not those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Node):
            yield (*of, child.name), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions_in(child, (*of, child.name))


def body_of(source: str, function: Function) -> tuple[int, int]:
    """The first and the last line of a function."""
    return _bodies(source)[function.name]


@cache
def _bodies(source: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of each function of a file, by its name."""
    return {
        ".".join(name): (node.lineno, node.end_lineno or node.lineno)
        for name, node in _functions_in(ast.parse(source), ())
    }


@cache
def touched() -> frozenset[str]:
    """All words in the files that name functions of vLLM."""
    files = {file for pattern in TOUCHED for file in ROOT.glob(pattern) if file.is_file()}
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def drawn(package: Path, kind: str, seed: int = 0) -> list[Function]:
    """All these functions in the order of the draw for a kind of mistake. Each has a number of its
    own by which they stand, so that one more or less does not change the order of the others."""
    return sorted(
        functions(package), key=lambda one: random.Random(f"{seed} {kind} {one}").random()
    )


def installed() -> Path:
    """The folder of the installed package vllm."""
    for folder in map(Path, sys.path):
        if (folder / "vllm/v1/core").is_dir():
            return folder / "vllm"
    sys.exit("No vLLM is installed here. Use `make venv-live` to install one.")


def main() -> int:
    """Print the first functions of a draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--first", type=int, default=40, help="how many are printed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for function in drawn(installed(), args.kind, args.seed)[: args.first]:
        print(function)
    return 0


if __name__ == "__main__":
    sys.exit(main())
