"""`kvproof faults`: all historical mistakes that the reference can be given."""

import argparse

from kvproof.cli.finish import finish
from kvproof.model.faults.registry import FAULTS
from kvproof.strategies.witnesses import broken_by

HELP = "list the faults, the origin of each, and the invariants that find it"


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

    def text() -> None:
        for row in rows:
            print(f"{row['name']} ({row['origin']})")
            print(f"    {row['mistake']}")
            print(f"    violates {', '.join(row['breaks'])}")
            print(f"    preset {row['config']}; overrides {row['rule']}")

    return finish(
        args, 0, lambda code: {"command": "faults", "exit_code": code, "faults": rows}, text
    )
