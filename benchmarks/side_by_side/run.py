"""One model in kvproof and in three other checkers, side by side.

    python benchmarks/side_by_side/run.py --sizes small middle --musil-python PATH_OF_PYTHON

SPIN is Debian's package `spin` and needs gcc; minicheck and musil are on PyPI, and musil needs
Python 3.12. Each search runs in a separate process on one core. The tools run alternately, and the
output has the medians over all rounds. All tools must find the same number of distinct states. Exit
code: 0 all tools ran and agree, 1 they do not agree or one failed, 2 bad usage, 3 a tool is not
installed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import in_spin
from kv_transfer import SIZES, Sizes
from measure import Failed, Run, measured
from table import growth, table

HERE = Path(__file__).parent
TOOLS = ("kvproof", "SPIN", "minicheck", "musil")
INSTALL = {
    "SPIN": "apt-get install spin gcc",
    "minicheck": "python -m pip install minicheck, and --minicheck-python where that is another",
    "musil": "python3.12 -m pip install musil, and --musil-python where that is another",
}


def in_python(python: str, program: str, sizes: Sizes) -> Run:
    """Run a program of this folder that prints states and seconds as JSON."""
    process = measured([python, HERE / program, *map(str, sizes)])
    found = json.loads(process.output.splitlines()[-1])
    return Run(found["states"], found["seconds"], process.seconds, process.peak_mib)


def imports(python: str, module: str) -> bool:
    """Whether an interpreter is installed and has a module."""
    try:
        return not subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True
        ).returncode
    except OSError:
        return False


def disagreement(size: str, runs: dict[str, list[Run]]) -> str | None:
    """How the numbers of states differ between the tools; None if they are equal."""
    found = {tool: {run.states for run in done} for tool, done in runs.items()}
    if len(set().union(*found.values())) > 1:
        return f"{size}: the tools do not agree on the number of states: {found}"
    return None


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--minicheck-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--musil-python", default="python3.12", metavar="PATH")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def main() -> int:
    """Run the rounds and print the tables."""
    args = parsed()
    there = {
        "SPIN": in_spin.installed,
        "minicheck": partial(imports, args.minicheck_python, "minicheck"),
        "musil": partial(imports, args.musil_python, "musil"),
    }
    absent = [tool for tool in args.tools if tool in there and not there[tool]()]
    tools = [tool for tool in args.tools if tool not in absent]
    medians: dict[str, dict[str, Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            sizes, pan = SIZES[size], Path(folder) / size
            searches = {
                "kvproof": partial(in_python, sys.executable, "in_kvproof.py", sizes),
                "SPIN": partial(in_spin.run, sizes, pan),
                "minicheck": partial(in_python, args.minicheck_python, "in_minicheck.py", sizes),
                "musil": partial(in_python, args.musil_python, "in_musil.py", sizes),
            }
            compiling = in_spin.compiled(sizes, pan) if "SPIN" in tools else None
            runs: dict[str, list[Run]] = {tool: [] for tool in tools}
            for number in range(args.rounds):
                for tool in tools:
                    print(f"{size}: round {number + 1}, {tool}", file=sys.stderr, flush=True)
                    runs[tool].append(searches[tool]())
            if wrong := disagreement(size, runs):
                print(wrong, file=sys.stderr)
                return 1
            medians[size] = {
                tool: Run(*map(statistics.median, zip(*done, strict=True)))
                for tool, done in runs.items()
            }
            print(table(size, medians[size], compiling))
    print(growth(medians))
    for tool in absent:
        print(f"{tool}: not run ({INSTALL[tool]})")
    return 3 if absent else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
