"""`kvproof invariants`: all invariants, and the guards of the spec."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.spec.registry import GUARDS
from kvproof.reports.screen import say

GUARDS_OF_THE_SPEC = "Guards of the spec: rules that every step must keep"


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
            "origin": each.origin,
            "killed_by": each.killed_by,
        }
        for each in INVARIANTS.values()
    ]
    guards = [
        {
            "id": guard.id,
            "name": guard.name,
            "part": guard.part,
            "severity": guard.severity.words,
        }
        for guard in GUARDS.values()
    ]
    if args.json:
        print_json({"command": "invariants", "exit_code": 0, "invariants": rows, "guards": guards})
        return 0
    for row in rows:
        say(f"{row['id']} ({row['severity']}, {row['kind']}, {row['origin']})")
        say(f"    {row['name']}", hang=6)
        say(f"    killed by: kvproof explore --fault {row['killed_by']}", hang=6)
    say()
    say(GUARDS_OF_THE_SPEC)
    for guard in guards:
        say(f"{guard['id']} ({guard['severity']}, {guard['part']})")
        say(f"    {guard['name']}", hang=6)
    return 0
