"""Real vLLM that is driven at random while it is watched, and the records of its engines."""

import random
from typing import Any, NamedTuple

from msgspec import structs

from kvproof.model.config import Cluster, Job
from kvproof.model.events import Event
from kvproof.model.records.record import Record
from kvproof.model.step import Step
from kvproof.strategies.sampling.workloads import longest_prompt
from tests.watching import Observed

JOBS = 5
WRITTEN = "2026-01-01T00:00:00+00:00"


class Run(NamedTuple):
    """The events that the driver took, and a record of each engine by its name."""

    cluster: Cluster
    events: list[Event]
    records: dict[str, Record]


def with_jobs(cluster: Cluster, rng: random.Random) -> Cluster:
    """The cluster with jobs that share prefixes and answers. No token is a hexadecimal digit, so no
    name or sum in a record looks like a part of a prompt."""
    size = max(group.block_size for group in cluster.engines[0].groups)
    trunk = "".join(rng.choice("xy") for _ in range(3 * size))
    jobs: list[Job] = []
    for number in range(JOBS):
        tokens = rng.randint(1, 4)
        base = rng.choice([trunk[: rng.randint(1, len(trunk))], *(j.conversation for j in jobs)])
        prompt = base + rng.choice("xyz") * rng.randint(0, size + 1)
        prompt = prompt[: longest_prompt(cluster.engines, tokens)]
        jobs.append(Job(f"r{number}", prompt, tokens, priority=rng.randint(0, cluster.by_priority)))
    return cluster.carrying(*jobs)


class Recorded(Observed):
    """Live vLLM of a cluster, whose histories keep the findings. `steps` has what was taken."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, told=lambda finding, history: history.found(finding))
        self.steps: list[Step] = []

    def take(self, *events: Event) -> Step:
        """Take events, and keep the steps."""
        self.steps += [super(Recorded, self).take(event) for event in events]
        return self.steps[-1]

    def at_random(self, rng: random.Random, steps: int) -> None:
        """Take random events, until nothing is left to do."""
        for _ in range(steps):
            stimuli = self.machine.stimuli()
            if not stimuli or any(engine.dead for engine in self.machine.state.engines):
                return
            self.take(rng.choice(stimuli))

    def records(self) -> dict[str, Record]:
        """A record of each engine: the same in every process and at any time."""
        from kvproof.watch.record import record_of

        for judge in self.judges.values():
            assert not judge.why_off, judge.why_off
        made = {
            name: record_of(observer.notes, "request", self.judges[name].by_hand)
            for name, observer in self.observers.items()
        }
        same: dict[str, Any] = {"written": WRITTEN, "process": 1, "clock": "a boot"}
        return {
            name: each._replace(header=structs.replace(each.header, **same))
            for name, each in made.items()
        }


def run(cluster: Cluster, seed: int = 0, steps: int = 80) -> Run:
    """A random run of real vLLM."""
    rng = random.Random(seed)
    recorded = Recorded(with_jobs(cluster, rng))
    recorded.at_random(rng, steps)
    events = [step.event for step in recorded.steps]
    return Run(recorded.machine.cluster, events, recorded.records())
