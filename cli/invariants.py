"""`kvproof invariants`: all invariants."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.invariants.registry import INVARIANTS

HELP = "list the invariants, how grave a breach is, what earned each, and the fault that breaks it"


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = [
        {
            "id": each.id,
            "name": each.name,
            "kind": each.kind,
            "severity": each.severity.words if each.severity else None,
            "born_of": each.born_of,
            "teeth": each.teeth,
        }
        for each in INVARIANTS.values()
    ]
    if args.json:
        print_json({"command": "invariants", "exit_code": 0, "invariants": rows})
        return 0
    for row in rows:
        print(f"{row['id']} ({row['severity']}, {row['kind']}, {row['born_of']})")
        print(f"    {row['name']}")
        print(f"    teeth: kvproof explore --fault {row['teeth']}")
    return 0
