"""This module makes the text of `--help`: the default of each option, and examples at the end."""

import argparse
from collections.abc import Mapping, Sequence

from kvproof.reports.screen import columns, folded

PROGRAM = "kvproof"

START = (
    ("kvproof explore", "every state of two requests on P and D, without vLLM"),
    ("kvproof explore --fault front_trim", "a historical mistake, and the shortest run to it"),
    ("kvproof doctor", "what of the installed vLLM can be driven"),
    ("kvproof sample --machine live", "random episodes on real vLLM, each step checked"),
    ("kvproof COMMAND --help", "the options of a command, and examples"),
)
"""Where to start: commands, and what each shows."""

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
        "kvproof gate --vllm vllm-checkout --base 0.33.0 --junit kvproof.xml",
    ),
    "connector": (
        "kvproof connector OffloadingConnector --examples 20",
        "kvproof connector my_package.store:Store --keeps-prompts",
    ),
    "doctor": ("kvproof doctor", "kvproof doctor --json"),
}
"""Examples of each command. Some need vLLM, or a trace or a record that an earlier one wrote."""


class Formatter(argparse.HelpFormatter):
    """Format the options in lines that fit the terminal and break between words, each with its
    default."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=columns())

    def _get_help_string(self, action: argparse.Action) -> str:
        """Return the help of an option, with its default if that is not empty or in the text
        already."""
        text = action.help or ""
        default = action.default
        none = default is None or default is False or default in ([], argparse.SUPPRESS)
        if "default" in text or none or not action.option_strings:
            return text
        shown = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        return f"{text} (default: {shown})".replace("%", "%%")

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return "N" if isinstance(action.default, int | float) else action.dest.upper()

    def _split_lines(self, text: str, width: int) -> list[str]:
        return folded(" ".join(text.split()), width, hang=0)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in folded(text, width - len(indent), hang=0))


def ending(prog: str) -> str:
    """Return the last part of `--help`: the examples of a command; for the program, where to
    start."""
    if prog == PROGRAM:
        lines = [line for command, what in START for line in (f"  {command}", f"      {what}")]
        return "\n".join(["where to start:", *lines])
    examples = EXAMPLES.get(prog.removeprefix(f"{PROGRAM} "), ())
    return "\n".join(["examples:", *(f"  {example}" for example in examples)])
