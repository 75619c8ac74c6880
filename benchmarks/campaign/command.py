"""The command line of the benchmarks that compare searches: one line of JSON for each search."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def run(
    about: str | None,
    measure: Callable[[argparse.Namespace], Iterator[Row]],
    table: Callable[[argparse.Namespace, list[Row]], None],
) -> None:
    """Measure, or print the table of what was measured."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--methods", nargs="+", default=["fresh", "target", "corpus", "given"])
    parser.add_argument("--given", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if args.table:
        table(args, [json.loads(line) for line in args.table.read_text().splitlines()])
        return
    if args.given is None:
        parser.error("--given is missing. Use the folder of a campaign on vLLM as released.")
    for row in measure(args):
        line = json.dumps(row)
        print(line, flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(line + "\n")
