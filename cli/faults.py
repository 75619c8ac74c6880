"""`kvproof faults`: all historical mistakes that the reference can be given."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.model.faults.registry import FAULTS
from kvproof.reports.screen import say
from kvproof.strategies.witnesses import broken_by


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = [
        {
            "name": each.name,
            "origin": each.origin,
            "mistake": each.mistake,
            "rule": each.replaces[0],
            "breaks": list(broken_by(each)),
            "config": each.cluster,
        }
        for each in FAULTS.values()
    ]
    if args.json:
        print_json({"command": "faults", "exit_code": 0, "faults": rows})
        return 0
    for fault in FAULTS.values():
        say(f"{fault.name} ({fault.origin})")
        say(f"    {fault.mistake}", hang=6)
        say(f"    violates {', '.join(broken_by(fault))}", hang=6)
        say(f"    preset {fault.cluster}; overrides {fault.replaces[0]}", hang=6)
    return 0
