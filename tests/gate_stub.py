"""A stand-in for the program `kvproof` that takes the command line of the recipes.

    python gate_stub.py gate --repo . --base REF --head REF --sarif FILE ...

It reads one file of both commits and judges by two words: a line with `mistake` is a defect, and
without `def free` the file cannot be driven. All that is written is written by the product.
"""

import argparse
import subprocess
import sys

import msgspec

from kvproof.cli import gate_files
from kvproof.gate.formats import terminal
from kvproof.reports.output.gate import Gate, GatePlace
from tests.gates import LOST, finding, gate

FILE = "vllm/v1/core/block_pool.py"


def content(repo: str, ref: str) -> list[str]:
    """The lines of the file in a commit."""
    command = ["git", "-C", repo, "show", f"{ref}:{FILE}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(2)
    return done.stdout.splitlines()


def judged(base: list[str], head: list[str]) -> Gate:
    """The result for the file on base and on head."""
    if not any("def free" in line for line in head):
        return gate(exit_code=3, verdict="UNKNOWN", reason="no BlockPool.free", lost=(LOST,))
    new = [number for number, line in enumerate(head, 1) if "mistake" in line and line not in base]
    if not new:
        return gate()
    place = GatePlace(file=FILE, line=new[0], function="BlockPool.free")
    return gate(exit_code=1, verdict="VIOLATED", findings=(finding(places=(place,)),))


def main() -> int:
    """Judge, print and write. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["gate"])
    for option in ("--repo", "--base", "--head"):
        parser.add_argument(option, required=True)
    gate_files.add_options(parser)
    args = parser.parse_args()
    result = judged(content(args.repo, args.base), content(args.repo, args.head))
    result = msgspec.structs.replace(result, seed=0)
    terminal.show(result)
    for file in gate_files.files(args, result):
        file.write()
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
