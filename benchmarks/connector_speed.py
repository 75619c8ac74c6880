"""Scheduler steps per second of the connector kit, with real tensors, beside the symbolic worker.

    python benchmarks/connector_speed.py

Both drive the real scheduler, with all their rules, alternately in one process: a store and a pair
of NIXL on the kit, and clusters with a store and with P/D on the symbolic worker. The ratio is to
the symbolic worker of the same round; the output has the medians over all rounds. The last column
is the time of an episode of 200 steps.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from vllm.v1.core.sched.scheduler import Scheduler

from kvproof.invariants.registry import CHECKS
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.machine import LiveMachine
from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.connector import Action, ConnectorPlan, RunSteps, SubmitRequest
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run, Violated

STEPS, EPISODES = 200, 8
"""Scheduler steps of an episode, and episodes of a round."""


@contextmanager
def counted() -> Iterator[list[int]]:
    """The number of scheduler steps, as the one entry of a list."""
    schedule, steps = Scheduler.schedule, [0]

    def one(self: Any, *given: Any, **named: Any) -> Any:
        steps[0] += 1
        return schedule(self, *given, **named)

    with patch.object(Scheduler, "schedule", one):
        yield steps


def symbolic(config: str, seed: int, steps: list[int]) -> None:
    """Episodes on the symbolic worker, until there are enough steps."""
    draw = random.Random(seed)
    while steps[0] < STEPS:
        run = Run(LiveMachine(CLUSTERS[config]), tuple(CHECKS.values()))
        with suppress(Violated):  # what is known of vLLM ends an episode
            while run.stimuli and not run.dead and steps[0] < STEPS:
                run.take(draw.choice(run.stimuli))


def with_tensors(name: str, seed: int, steps: list[int]) -> None:
    """An episode on the kit: prompts that come again, until there are enough steps."""
    draw = random.Random(seed)
    engine = EngineConfig("E", (Group("full", 4),), num_blocks=48, chunk_tokens=16)
    actions: list[Action] = []
    for _ in range(STEPS // 4):
        actions += [SubmitRequest(draw.randrange(2), draw.randint(4, 24), 3), RunSteps(4)]
    play(SHIPPED[name].subject, ConnectorPlan(engine, tuple(actions)), lambda *_: steps[0] < STEPS)


PAIRS: dict[str, tuple[Callable[..., None], str, Callable[..., None], str]] = {
    "a store": (symbolic, "store", with_tensors, "offloading"),
    "P/D": (symbolic, "pd", with_tensors, "nixl-pull"),
}


def speed(drive: Callable[..., None], name: str) -> tuple[float, float]:
    """Steps per second, and the longest episode in seconds."""
    taken, seconds = 0, []
    for seed in range(EPISODES):
        with counted() as steps:
            began = time.perf_counter()
            drive(name, seed, steps)
            seconds.append(time.perf_counter() - began)
        taken += steps[0]
    return taken / sum(seconds), STEPS * sum(seconds) / taken


def main() -> None:
    """Run the rounds and print two lines for each pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"{'':34} {'steps/s':>8} {'ratio':>6} {'200 steps':>10}")
    for what, (peer, config, drive, name) in PAIRS.items():
        peers, found = [], []
        for number in range(-1, args.rounds):  # the first round warms up
            of_peer, of_kit = speed(peer, config), speed(drive, name)
            if number >= 0:
                peers.append(of_peer)
                found.append(of_kit)
            print(f"round {number + 1} of {args.rounds}", end="\r", file=sys.stderr, flush=True)
        ratio = statistics.median(f / p for (f, _), (p, _) in zip(found, peers, strict=True))
        for label, rows, share in (
            (f"{what}: symbolic, {config}", peers, 1.0),
            (f"{what}: tensors, {name}", found, ratio),
        ):
            steps_s, episode_s = map(statistics.median, zip(*rows, strict=True))
            print(f"{label:34} {steps_s:8.0f} {share:6.2f} {episode_s:9.2f}s")


if __name__ == "__main__":
    main()
