"""`kvproof configs`: the preset clusters, and what each is for."""

import argparse

from kvproof.cli.finish import finish
from kvproof.model.presets import CLUSTERS

HELP = "list the preset clusters, what each is for, and how many distinct states it has"


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = [{"name": name, **CLUSTERS.notes(name)} for name in CLUSTERS]

    def text() -> None:
        for row in rows:
            print(f"{row['name']} ({row['distinct_states']:,} distinct states)")
            print(f"    {row['about']}")

    return finish(
        args, 0, lambda code: {"command": "configs", "exit_code": code, "configs": rows}, text
    )
