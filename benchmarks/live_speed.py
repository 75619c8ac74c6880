"""Steps per second on real vLLM: with all checks, with all checks and known findings, and without
checks.

    python benchmarks/live_speed.py --config pd

The loops run alternately on the same seeded episodes in one process. The ratios are relative to the
loop without checks of the same round; the output has the medians over all rounds.
"""

import argparse
import contextlib
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.live.known.registry import KNOWN
from kvproof.live.machine import LiveMachine
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.run import Run, Violated

EPISODES = 40
EVENTS = 60
"""The maximum number of events in an episode."""


class Watching(Run):
    """A run that continues after a finding, because known findings occur here again."""

    def fail(self, *findings: Finding) -> None:
        """Let the machine explain the findings, and continue."""
        with contextlib.suppress(Violated):
            super().fail(*findings)


def watched(cluster: Cluster) -> Machine:
    """Live vLLM as `kvproof sample` drives it."""
    return Watched(LiveMachine(cluster), KNOWN.values(), Counter())


def episode(machine: Machine, invariants: Iterable[Check], seed: int) -> int:
    """Drive a machine with seeded choices. Returns the steps taken."""
    draw = random.Random(seed)
    run = Watching(machine, invariants)
    while run.stimuli and not run.dead and len(run.steps) < EVENTS:
        run.take(draw.choice(run.stimuli))
    return len(run.steps)


def main() -> None:
    """Run the rounds and print one line for each loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="pd", choices=sorted(CLUSTERS))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    every = tuple(CHECKS.values())
    cluster = CLUSTERS[args.config]
    loops: dict[str, tuple[Callable[[Cluster], Machine], tuple[Check, ...]]] = {
        "vLLM, no checks": (LiveMachine, ()),
        "vLLM, guards and invariants": (LiveMachine, every),
        "vLLM, watched, guards and invariants": (watched, every),
        "reference, guards and invariants": (ModelMachine, every),
    }
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(-1, args.rounds):  # the first round warms up
        for name, (make, invariants) in loops.items():
            steps, seconds = 0, 0.0
            for seed in range(EPISODES):
                machine = make(cluster)
                began = time.perf_counter()
                steps += episode(machine, invariants, seed)
                seconds += time.perf_counter() - began
            if number >= 0:
                speeds[name].append(steps / seconds)
        print(f"round {max(number + 1, 0)} of {args.rounds}", end="\r", file=sys.stderr, flush=True)
    bare = next(iter(speeds.values()))
    print(f"{'':38} {'steps/s':>9} {'ratio':>6}")
    for name, found in speeds.items():
        ratio = statistics.median(f / b for f, b in zip(found, bare, strict=True))
        print(f"{name:38} {statistics.median(found):9.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
