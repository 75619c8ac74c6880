"""`kvproof configs`: the preset clusters, and what each is for; and one cluster as JSON."""

import argparse
import json

from kvproof.cli.finish import finish
from kvproof.model.config import Cluster
from kvproof.model.config.config_json import without_defaults
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.reports.cluster_line import cluster_lines
from kvproof.reports.output.lists import ConfigRow, Configs, ShownConfig
from kvproof.reports.screen import say

LIVE = "on live vLLM only"
KEY = """
A group is its kind and the number of tokens in a block; "window 2 (of 3)" has blocks of 2 tokens
and a window of 3, and "eagle" has layers of a drafter. Use kvproof configs --show NAME for the JSON
of a cluster.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The cluster to show."""
    parser.add_argument(
        "--show",
        metavar="NAME",
        help="print the JSON of a preset, a file or random:SEED; --config takes a file with it",
    )


def run(args: argparse.Namespace) -> int:
    """Print the list, or one cluster."""
    if args.show is not None:
        return _show(cluster_named(args.show), args)
    files = [each.file(name) for each in (CLUSTERS, LIVE_CLUSTERS) for name in each]
    rows = tuple(
        ConfigRow(name=f.name, about=f.about, distinct_states=f.distinct_states or 0) for f in files
    )

    def text() -> None:
        for row in rows:
            states = f"{row.distinct_states:,} distinct states" if row.distinct_states else LIVE
            say(f"{row.name} ({states})")
            say(f"    {row.about}")
            for line in cluster_lines(cluster_named(row.name)):
                say(f"    {line}")
        say()
        say(" ".join(KEY.split()), hang=1)

    return finish(args, 0, lambda code: Configs(exit_code=code, configs=rows), text)


def _show(cluster: Cluster, args: argparse.Namespace) -> int:
    def text() -> None:
        print(json.dumps(without_defaults(cluster), indent=2))

    return finish(args, 0, lambda code: ShownConfig(exit_code=code, config=cluster), text)
