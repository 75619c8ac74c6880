"""`kvproof configs`: the preset clusters, and what each is for."""

import argparse

from kvproof.cli.finish import finish
from kvproof.model.presets import CLUSTERS
from kvproof.reports.output.lists import ConfigRow, Configs
from kvproof.reports.screen import say


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    files = map(CLUSTERS.file, CLUSTERS)
    rows = tuple(
        ConfigRow(name=f.name, about=f.about, distinct_states=f.distinct_states or 0) for f in files
    )

    def text() -> None:
        for row in rows:
            say(f"{row.name} ({row.distinct_states:,} distinct states)")
            say(f"    {row.about}")

    return finish(args, 0, lambda code: Configs(exit_code=code, configs=rows), text)
