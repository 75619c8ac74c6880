"""The program: finds the command, runs it, and turns every end into an exit code.

0 all hold, 1 violated, 2 bad usage or input, 3 unknown or not run. A violation below the severity
of --fail-on gives 0.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

import kvproof
from kvproof.cli import (
    configs,
    coverage,
    doctor,
    explore,
    faults,
    gate,
    invariants,
    matrix,
    prove,
    releases,
    remedies,
    replay,
    report,
    sample,
)
from kvproof.cli.command import Command
from kvproof.cli.finish import finish
from kvproof.cli.parser import Parser
from kvproof.model.errors import AdapterDrift, UsageError, unknown
from kvproof.strategies.verdict import Verdict

COMMANDS: Mapping[str, Command] = {
    "explore": explore,
    "sample": sample,
    "prove": prove,
    "replay": replay,
    "invariants": invariants,
    "faults": faults,
    "configs": configs,
    "matrix": matrix,
    "report": report,
    "releases": releases,
    "remedies": remedies,
    "coverage": coverage,
    "gate": gate,
    "doctor": doctor,
}

BAD_USAGE = 2


def _undriven(args: argparse.Namespace, drift: AdapterDrift) -> int:
    """Report a drift of the adapter that no command handled itself."""
    verdict, reason = Verdict.UNKNOWN, str(drift)
    head = {"command": args.command, "verdict": verdict.value, "reason": reason}
    return finish(
        args,
        verdict.exit_code,
        lambda code: head | {"exit_code": code},
        lambda: print(f"UNKNOWN: {reason}"),
    )


def parser() -> Parser:
    """The parser of the whole command line."""
    top = Parser(
        prog="kvproof",
        description=kvproof.__doc__,
        epilog="Exit codes: 0 all hold, 1 violated, 2 bad usage or input, 3 unknown or not run. A "
        "violation below the severity of --fail-on (by default: lost performance and "
        "bookkeeping) is reported, and the exit code is 0.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kvproof {kvproof.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name, help=command.HELP, description=command.HELP, allow_abbrev=False
        )
        command.add_options(one)
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument("--seed", type=int, default=0, help="seed of every random choice")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (by default that of the process). Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], COMMANDS)
        args = parser().parse_args(arguments)
        code = COMMANDS[args.command].run(args)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(error, file=sys.stderr)
        return BAD_USAGE
    except AdapterDrift as drift:
        return _undriven(args, drift)
    except KeyboardInterrupt:
        print("Interrupted: the verdict is UNKNOWN.", file=sys.stderr)
        return Verdict.UNKNOWN.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe. Without this, Python would print its own error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Verdict.UNKNOWN.exit_code
