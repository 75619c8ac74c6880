"""`kvproof configs`: the preset clusters, and what each is for."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.model.presets import CLUSTERS


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = [{"name": name, **CLUSTERS.notes(name)} for name in CLUSTERS]
    if args.json:
        print_json({"command": "configs", "exit_code": 0, "configs": rows})
        return 0
    for row in rows:
        print(f"{row['name']} ({row['distinct_states']:,} distinct states)")
        print(f"    {row['about']}")
    return 0
