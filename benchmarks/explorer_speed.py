"""Distinct states per second of processor time: the explorer's plain search and the packed one.

    python benchmarks/explorer_speed.py --config pd-evicting --spin

Both searches visit the same states and check all invariants. They run alternately in one process.
The ratio is relative to the plain search of the same round; the output has the medians over all
rounds. `--spin` has SPIN search a small model of its own in each round as well (`spin/`).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from spin import speed as spin

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.exhaustive import search
from kvproof.strategies.explorer.packed import PackedSearch

ALL = tuple(CHECKS.values())


def plain(cluster: Cluster) -> int:
    """Search, and return the number of states."""
    return len(search(cluster, ALL, 10_000_000).states)


def packed(cluster: Cluster) -> int:
    """Search with packed states, and return the number of states."""
    run = PackedSearch(cluster, ALL)
    while not run.over:
        run.expand()
    return len(run.reached.packed)


LOOPS: dict[str, Callable[[Cluster], int]] = {"plain": plain, "packed": packed}


def main() -> None:
    """Run all rounds and print one line for each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="pd-default", choices=sorted(CLUSTERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spin", action="store_true", help="SPIN beside them, on its own model")
    args = parser.parse_args()
    of_spin: list[float] = []
    speeds: dict[str, list[float]] = {name: [] for name in LOOPS}
    states = set()
    for number in range(args.rounds):
        for name, loop in LOOPS.items():
            began = time.process_time()
            found = loop(CLUSTERS[args.config])
            speeds[name].append(found / (time.process_time() - began))
            states.add(found)
        if args.spin:
            try:
                of_spin.append(spin.states_per_second()[1])
            except RuntimeError as error:
                sys.exit(str(error))
        print(f"round {number + 1} of {args.rounds}", end="\r", file=sys.stderr, flush=True)
    (count,) = states
    print(f"{args.config}: {count} distinct states")
    print(f"{'':8} {'states/s':>9} {'ratio':>6}")
    for name, found_speeds in speeds.items():
        ratio = statistics.median(f / p for f, p in zip(found_speeds, speeds["plain"], strict=True))
        print(f"{name:8} {statistics.median(found_speeds):9.0f} {ratio:6.2f}")
    if of_spin:
        print(f"{'SPIN':8} {statistics.median(of_spin):9.0f}        (another model)")


if __name__ == "__main__":
    main()
