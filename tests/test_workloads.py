"""Jobs that are drawn: prompts of small prefix trees that end near block boundaries and fit."""

import pytest
from hypothesis import find, given, settings

from kvproof.model import termination
from kvproof.model.capacity import peak_blocks, reserved_blocks
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.events import Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.model.presets.room import REQUESTS, roomy
from kvproof.model.state import State
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from kvproof.strategies.sampling import episode
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.sampling.wide import random_clusters
from kvproof.strategies.sampling.workloads import (
    LETTERS,
    MAX_TOKENS,
    jobs,
    longest_prompt,
)

FULL = CLUSTERS["full"]


def alone(cluster: Cluster, job: Job) -> State:
    """Run one job on the model to its end."""
    run = Run(ModelMachine(cluster.carrying(job)))
    run.take(Submit(cluster.prefill.name, job.name))
    drain(run, "every_request_can_finish")
    return run.machine.state


@pytest.mark.parametrize("name", sorted(CLUSTERS))
@pytest.mark.parametrize("max_tokens", [MAX_TOKENS[0], MAX_TOKENS[-1]])
def test_the_longest_prompt_fits_and_one_token_more_does_not(name: str, max_tokens: int) -> None:
    cluster = CLUSTERS[name]
    longest = longest_prompt(cluster.engines, max_tokens)
    assert longest > 0
    alone(cluster, Job("r0", "a" * longest, max_tokens))
    free = [e.num_blocks - 1 for e in cluster.engines]
    after = [0 if e.role == "prefill" else max_tokens - 1 for e in cluster.engines]
    peaks = [
        max(peak_blocks(e, longest + 1 + m), reserved_blocks(e, longest + 1 + m))
        for e, m in zip(cluster.engines, after, strict=True)
    ]
    assert any(peak > blocks for peak, blocks in zip(peaks, free, strict=True))


def test_a_prompt_that_cannot_fit_is_rejected() -> None:
    state = alone(FULL, Job("r0", "a" * (longest_prompt(FULL.engines, 1) + 1)))
    assert state.ended == (("E", "r0"),)
    assert state.engine("E").ghost.served == ()


def test_an_oversized_cluster_draws_jobs_that_do_not_fit() -> None:
    cluster = CLUSTERS["oversized"]
    job = find(
        jobs(cluster, "r0"),
        lambda job: len(job.prompt) > longest_prompt(cluster.engines, job.max_tokens),
        settings=settings(max_examples=200, database=None),
    )
    assert len(job.prompt) <= longest_prompt(cluster.engines, job.max_tokens) + 2


@pytest.mark.parametrize("name", ["full", "hybrid", "pd", "pd-ratio"])
def test_every_job_fits_and_is_written_in_letters(name: str) -> None:
    cluster = CLUSTERS[name]

    @settings(max_examples=50, database=None)
    @given(jobs(cluster, "r3", ["abca", "b"]))
    def check(job: Job) -> None:
        assert job.name == "r3"
        assert set(job.prompt) <= set(LETTERS)
        assert job.max_tokens in MAX_TOKENS
        assert len(job.prompt) <= longest_prompt(cluster.engines, job.max_tokens)
        assert cluster.disaggregated or not job.embeds

    check()


@given(jobs(CLUSTERS["pd-extra-keys"], "r1", ["ab", "ab.."], embeds=False))
def test_with_extra_keys_only_the_next_turn_contains_an_answer(job: Job) -> None:
    """An answer has no form for each key."""
    assert "." not in job.prompt


def test_a_pool_too_small_for_one_token_is_bad_usage() -> None:
    tiny = Cluster("tiny", (EngineConfig("E", (Group("full", 2), Group("full", 2)), num_blocks=2),))
    with pytest.raises(UsageError, match=r"Not even .* Use a larger num_blocks\."):
        find(jobs(tiny, "r0"), lambda _job: True, settings=settings(database=None))


# The end of an episode, and clusters with room


def served(cluster: Cluster, *jobs: Job) -> Run:
    run = Run(ModelMachine(cluster))
    run.add_jobs(jobs)
    for job in jobs:
        run.take(Submit(cluster.prefill.name, job.name))
        drain(run, None)
    return run


@pytest.mark.parametrize("name", ["full", "hybrid:roomy", "pd-default"])
def test_two_prompts_part_from_an_earlier_one(name: str) -> None:
    run = served(cluster_named(name).carrying(), Job("r0", "abababab", 2))
    episode.come(run, (0, 4, (5, 5)), None)
    first, *two = run.machine.cluster.jobs
    shared = len(two[0].prompt.rstrip("y"))
    assert 0 < shared < len(first.prompt)
    assert two[1].prompt.rstrip("z") == two[0].prompt[:shared] == first.prompt[:shared]
    came = [step.event.request for step in run.steps if isinstance(step.event, Submit)]
    assert came[:1] + came[-1:] == ["r0", "s1"]
    assert termination.over(run.machine.state)


def test_no_prompt_comes_where_none_was() -> None:
    run = served(CLUSTERS["full"].carrying())
    episode.come(run, (0, 0, (0, 0)), None)
    assert not run.steps


def test_some_episodes_with_room_end_so_and_others_do_not() -> None:
    machines: list[ModelMachine] = []

    def make(cluster: Cluster) -> ModelMachine:
        machines.append(ModelMachine(cluster))
        return machines[-1]

    def with_siblings(name: str) -> int:
        machines.clear()
        sample(cluster_named(name), make, seed=1, examples=20, steps=10)
        assert len(machines) >= 20
        return sum(any(job.name == "s1" for job in each.cluster.jobs) for each in machines)

    assert with_siblings("full") == 0
    assert 2 < with_siblings("full:roomy") < 18


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
