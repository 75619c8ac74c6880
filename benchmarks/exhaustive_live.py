"""Every order of events on real vLLM, beside random episodes of the same time.

    python benchmarks/exhaustive_live.py > reports/exhaustive_live.md

For each preset: the search of `kvproof explore --machine live`, and then episodes of `kvproof
sample --machine live` with the jobs of the preset, for as much processor time. Prints a page with
the states that each of them saw.
"""

import argparse
import contextlib
import time
from typing import NoReturn

from kvproof.invariants.registry import CHECKS
from kvproof.live.known.registry import KNOWN
from kvproof.live.machine import LiveMachine
from kvproof.model.config import Cluster
from kvproof.model.machine import Machine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.explorer.by_replay import digest, explore_by_replay
from kvproof.strategies.explorer.running import Limits
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.stateful import sample

PRESETS = ("full", "three", "window", "hybrid", "priority", "pd-full", "pd-default")
EPISODES_MAX = 1_000_000

HEAD = """\
# Every order of events on real vLLM

Made by `benchmarks/exhaustive_live.py`. `kvproof explore --machine live` takes each order of the
events of a preset's jobs on real vLLM (two states are one if all that is observed of them is
equal). *Sampled* is the share of these states that random episodes with the same jobs come to in
the same processor time.

| preset | verdict | states | events taken | depth | seconds | states/s | sampled |
|---|---|---|---|---|---|---|---|
"""


class Over(BaseException):
    """The time is used up."""


def watched(cluster: Cluster) -> Machine:
    """Live vLLM as `kvproof explore` and `kvproof sample` drive it."""
    return Watched(LiveMachine(cluster), KNOWN.values())


def sampled(cluster: Cluster, seconds: float) -> set[bytes]:
    """The states that random episodes of this processor time come to."""
    seen: set[bytes] = set()
    ends = time.process_time() + seconds

    def ended(run: Run) -> None:
        seen.update(digest(step.after) for step in run.steps)
        if time.process_time() > ends:
            raise Over

    def failed(violated: Violated) -> NoReturn:
        raise violated

    with contextlib.suppress(Over):
        sample(cluster, watched, examples=EPISODES_MAX, use_jobs=True, ended=ended, failed=failed)
    return seen


def main() -> None:
    """Print the page, a line as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states-max", type=int, default=20_000)
    parser.add_argument("presets", nargs="*", default=list(PRESETS))
    args = parser.parse_args()
    print(HEAD, end="", flush=True)
    for name in args.presets:
        cluster = CLUSTERS[name]
        begin = time.process_time()
        limits = Limits(args.states_max)
        outcome = explore_by_replay(cluster, watched, tuple(CHECKS.values()), limits)
        seconds = time.process_time() - begin
        covered = outcome.coverage
        states = covered["states_distinct"]
        share = len(sampled(cluster, seconds)) / states
        print(
            f"| `{name}` | {outcome.verdict.value} | {states:,} | "
            f"{covered['states_generated']:,} | {covered['depth']} | {seconds:.0f} | "
            f"{states / seconds:.0f} | {share:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
