"""The program finds the command, runs it, and turns every end into an exit code.

0 all hold, 1 violated, 2 bad usage or input, 3 unknown or not run. A violation below the severity
of --fail-on gives 0. See `ending` for the exit codes of an interruption and of a lost output.
"""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol, cast

import kvproof
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift, FaultStopsModel, UsageError, unknown
from kvproof.model.files.reading import shown
from kvproof.reports.screen import folded, say

COMMANDS: Mapping[str, str] = {
    "explore": "visit every reachable state of a cluster, and check all invariants in each state",
    "sample": "run random episodes of the model or of real vLLM, and shrink a violation",
    "campaign": "search for hours, on many processes or machines, and learn from what was seen",
    "prove": "prove the arithmetic and the counts for all sizes, or find numbers that violate them",
    "replay": "repeat a trace or a plan, and report whether its finding appears again",
    "explain": "say what a name stands for that kvproof prints, and how to see it; list the "
    "invariants, the faults, the preset clusters; print a cluster as JSON",
    "report": "print a trace, a plan or a record: what each event changed, and what is wrong; or "
    "judge the records of a prefill and a decode engine together; or print a campaign",
    "gate": "judge a pull request to vLLM: drive base and head, and report what only head breaks",
    "connector": "run random episodes of a KV connector, and judge what it does to the KV cache",
    "doctor": "list which features of the installed vLLM kvproof can drive, and what is missing",
}
"""The commands, and what each does. The module of the same name has its options and runs it; only
the module of the command in use is imported."""

EXAMPLES: Mapping[str, Sequence[str]] = {
    "explore": (
        "kvproof explore --fault truncation_without_guard",
        "kvproof explore --machine live --config full",
    ),
    "sample": (
        "kvproof sample --config pd --examples 1000 --seed 1",
        "kvproof sample --machine live --config random:7",
    ),
    "campaign": (
        "kvproof campaign --units 4 --out campaign",
        "kvproof campaign --units 8 --out campaign --resume",
    ),
    "prove": (
        "kvproof prove --obligation trim_equal_counts",
        "kvproof prove --fault front_trim",
    ),
    "replay": (
        "kvproof replay kvproof-traces/pool_adds_up.jsonl",
        "kvproof replay kvproof-traces/pool_adds_up.jsonl --machine live",
        "kvproof replay kvproof-traces/pool_adds_up.jsonl --releases 0.32.0 0.33.0",
    ),
    "explain": (
        "kvproof explain references_are_exact",
        "kvproof explain invariants",
        "kvproof explain pd --json",
    ),
    "report": (
        "kvproof report kvproof-traces/pool_adds_up.jsonl",
        "kvproof report kvproof-traces/pool_adds_up.jsonl --html ledger.html",
        "kvproof report P.jsonl D.jsonl",
    ),
    "gate": (
        "kvproof gate --repo . --base main --head HEAD --sarif kvproof.sarif",
        "kvproof gate --vllm vllm-checkout --base 0.33.0 --summary kvproof.md",
    ),
    "connector": (
        "kvproof connector OffloadingConnector --examples 20",
        "kvproof connector my_package.store:Store --keeps-prompts",
    ),
    "doctor": ("kvproof doctor", "kvproof doctor --json"),
}
"""Examples of each command. Some need vLLM, or a run or a record that an earlier one wrote."""

START = """where to start:
  kvproof explore
      every state of two requests on P and D, without vLLM
  kvproof explore --fault front_trim
      a historical mistake, and the shortest run to it
  kvproof doctor
      what of the installed vLLM can be driven
  kvproof sample --machine live
      random episodes on real vLLM, each step checked
  kvproof COMMAND --help
      the options of a command, and examples
"""

BAD_USAGE, UNKNOWN = 2, 3


class Command(Protocol):
    """One command. `run` returns the exit code."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this command."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command."""


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise UsageError for an empty value, as an unset variable of a shell gives it: as a path it
    would be the working folder."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, is_joined, value = word.partition("=")
        if word == "" or (option.startswith("--") and is_joined and not value):
            what = option or before or "An argument"
            raise UsageError(f"The value of {shown(what)} is empty. Use a value, or leave it out.")


REASON_MAX = 300
"""The number of characters of what is wrong with a command line."""


class Formatter(argparse.HelpFormatter):
    """Breaks the lines of a text between words alone, and keeps those that it has."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return folded(text, width, hang=0)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (part for line in text.splitlines() for part in folded(line, width, hang=0))
        return "\n".join(indent + each for each in lines)


class Parser(argparse.ArgumentParser):
    """This parser raises its errors as usage errors."""

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(prog, formatter_class=Formatter, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse options that the command does not know, so that the error names the command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print --help. Unlike argparse, this raises where it cannot be printed."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        reason = message.rstrip(".")
        reason = reason if len(reason) <= REASON_MAX else f"{reason[:REASON_MAX]}..."
        raise UsageError(
            f"The command line is wrong: {reason}. Use {self.prog} --help to see its options."
        )


def parser(*loaded: str) -> Parser:
    """Make the parser of the whole command line. It has the options of these commands, or of all if
    none is named: the module of a command is imported for its options."""
    top = Parser(
        prog="kvproof",
        description=" ".join((kvproof.__doc__ or "").split()),
        epilog="Exit codes: 0 all hold, 1 violated, 2 bad usage or input, 3 unknown or not run, 4 "
        "the output could not be written, 129, 130 and 143 interrupted, 141 the reader of the "
        "output has gone. A violation below the severity of --fail-on (by default: lost "
        "performance, wrong report and bookkeeping) is reported, and the exit code is 0.\n\n"
        + START,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kvproof {kvproof.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        examples = "\n".join(("examples:", *(f"  {each}" for each in EXAMPLES[name])))
        one = commands.add_parser(
            name, help=does, description=does, epilog=examples, allow_abbrev=False
        )
        if name in (loaded or COMMANDS):
            command(name).add_options(one)
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument(
            "--seed",
            type=int,
            default=0,
            metavar="N",
            help="seed of every random choice (default: %(default)s)",
        )
    return top


def command(name: str) -> Command:
    """Import the module of a command."""
    return cast(Command, importlib.import_module(f"kvproof.cli.{name}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (by default that of the process). Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with interruption.handled():
        try:
            return interruption.exit_code(_run(arguments))
        except UsageError as error:
            say(str(error), file=sys.stderr)
            return interruption.exit_code(BAD_USAGE)


def _run(arguments: Sequence[str]) -> int:
    named = next((word for word in arguments if not word.startswith("-")), "")
    if arguments and named == arguments[0] and named not in COMMANDS:
        raise unknown("command", named, COMMANDS)
    refuse_empty(arguments)
    # Where no command is named, as with --help, the options of none are needed.
    args = parser(named).parse_args(arguments)
    try:
        with interruption.stoppable() as stopped:
            code = command(args.command).run(args)
        return _unknown(args, "interrupted") if stopped else code
    except (AdapterDrift, FaultStopsModel) as error:
        return _unknown(args, str(error))


def _unknown(args: argparse.Namespace, reason: str) -> int:
    """Print the end of a command that no command handled itself. Return the exit code."""
    code = interruption.exit_code(UNKNOWN)
    if args.json:
        from kvproof.reports.document import document

        print(document(args.command, code, {"verdict": "UNKNOWN", "reason": reason}))
    else:
        say(f"UNKNOWN: {reason}")
    return code
