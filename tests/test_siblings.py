"""The end of an episode, and clusters with room."""

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model import termination
from kvproof.model.config import Cluster, Job
from kvproof.model.events import Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.model.presets.room import REQUESTS, roomy
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from kvproof.strategies.sampling import siblings
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.sampling.wide import random_clusters


def served(cluster: Cluster, *jobs: Job) -> Run:
    run = Run(ModelMachine(cluster), CHECKS.values())
    run.add_jobs(jobs)
    for job in jobs:
        run.take(Submit(cluster.prefill.name, job.name))
        drain(run, None)
    return run


@pytest.mark.parametrize("name", ["full", "hybrid:roomy", "pd-default"])
def test_two_prompts_part_from_an_earlier_one(name: str) -> None:
    run = served(cluster_named(name).carrying(), Job("r0", "abababab", 2))
    siblings.come(run, (0, 4, (5, 5)), None)
    first, *two = run.machine.cluster.jobs
    shared = len(two[0].prompt.rstrip("y"))
    assert 0 < shared < len(first.prompt)
    assert two[1].prompt.rstrip("z") == two[0].prompt[:shared] == first.prompt[:shared]
    came = [step.event.request for step in run.steps if isinstance(step.event, Submit)]
    assert came[:1] + came[-1:] == ["r0", "s1"]
    assert termination.over(run.machine.state)


def test_no_prompt_comes_where_none_was() -> None:
    run = served(CLUSTERS["full"].carrying())
    siblings.come(run, (0, 0, (0, 0)), None)
    assert not run.steps


def test_some_episodes_with_room_end_so_and_others_do_not() -> None:
    names: list[bool] = []

    def ended(run: Run) -> None:
        names.append(any(job.name == "s1" for job in run.machine.cluster.jobs))

    for name in "full", "full:roomy":
        sample(cluster_named(name), ModelMachine, seed=1, examples=20, steps=10, ended=ended)
    assert not any(names[:20])
    assert 2 < sum(names) < 18


def test_with_room_prompts_stay_in_the_cache() -> None:
    """In the pool of the preset, other prompts evict what the first one left."""
    jobs = [Job(f"r{n}", 8 * letter) for n, letter in enumerate("abca"[:REQUESTS])]
    for name, kept in ("full", False), ("full:roomy", True):
        run = served(cluster_named(name).carrying(), *jobs)
        *_, last = (each for step in run.steps for each in step.effects.admissions)
        assert (last.hit > 0) is kept


def test_roomy_is_a_name() -> None:
    assert cluster_named("full:roomy") == roomy(CLUSTERS["full"])
    assert roomy(cluster_named("full:roomy")) == cluster_named("full:roomy")
    names = [cluster.name for cluster, _ in zip(random_clusters(0), range(60), strict=False)]
    assert 5 < sum(name.endswith(":roomy") for name in names) < 32
