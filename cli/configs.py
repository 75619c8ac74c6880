"""`kvproof configs`: the preset clusters, and what each is for."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.model.presets import CLUSTERS
from kvproof.reports.screen import say


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    files = map(CLUSTERS.file, CLUSTERS)
    rows = [{"name": f.name, "about": f.about, "distinct_states": f.distinct_states} for f in files]
    if args.json:
        print_json({"command": "configs", "exit_code": 0, "configs": rows})
        return 0
    for row in rows:
        say(f"{row['name']} ({row['distinct_states']:,} distinct states)")
        say(f"    {row['about']}")
    return 0
