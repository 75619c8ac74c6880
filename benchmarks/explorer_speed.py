"""Distinct states per second of processor time of the explorer's search.

    python benchmarks/explorer_speed.py --config pd-evicting

The search checks all invariants. The output has the median over all rounds.
"""

import argparse
import statistics
import sys
import time

from kvproof.invariants.registry import CHECKS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.packed import PackedSearch


def main() -> None:
    """Run all rounds and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="pd-default", choices=sorted(CLUSTERS))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    speeds: list[float] = []
    for number in range(args.rounds):
        began = time.process_time()
        search = PackedSearch(CLUSTERS[args.config], tuple(CHECKS.values()))
        while not search.over:
            search.expand()
        speeds.append(search.states / (time.process_time() - began))
        print(f"round {number + 1} of {args.rounds}", end="\r", file=sys.stderr, flush=True)
    print(f"{args.config}: {search.states} distinct states")
    print(f"explorer {statistics.median(speeds):9.0f} states/s")


if __name__ == "__main__":
    main()
