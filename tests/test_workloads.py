"""Jobs come from small prefix trees, end near block boundaries, and always fit the pools."""

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.capacity import blocks_with_hit, peak_blocks, reserved_blocks
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.events import Submit
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import State
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.workloads import (
    LETTERS,
    MAX_TOKENS,
    jobs,
    longest_prompt,
    prompt_lengths,
    prompts,
)
from tests.planted import under

FULL = CLUSTERS["full"]
PD = CLUSTERS["pd"]


def alone(cluster: Cluster, job: Job) -> State:
    """Run one job on the model to its end."""
    run = Run(ModelMachine(cluster.carrying(job)), INVARIANTS.values())
    run.take(Submit(cluster.prefill.name, job.name))
    drain(run, "every_request_can_finish")
    return run.machine.state


def test_a_full_attention_request_needs_a_block_for_each_started_block_of_tokens() -> None:
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=9)
    assert [peak_blocks(engine, n) for n in (1, 2, 3, 8)] == [1, 1, 2, 4]


def test_a_mamba_group_needs_the_old_state_and_the_new_one() -> None:
    engine = EngineConfig("E", (Group("mamba", 2),), num_blocks=9)
    assert [peak_blocks(engine, n) for n in (1, 2, 3, 8)] == [1, 1, 2, 2]


def test_a_window_holds_on_to_one_window_and_one_chunk() -> None:
    engine = EngineConfig("E", (Group("window", 2, window=3),), num_blocks=99, chunk_tokens=4)
    assert peak_blocks(engine, 100) == peak_blocks(engine, 50) == 4


def test_output_shortens_the_longest_prompt_by_all_but_the_last_token() -> None:
    assert [longest_prompt(FULL.engines, m) for m in MAX_TOKENS] == [8, 7, 6, 5]


def test_a_window_is_reserved_up_to_a_chunk_and_what_it_sees() -> None:
    engine = EngineConfig("E", (Group("window", 2, window=4),), 20, chunk_tokens=4)
    assert [reserved_blocks(engine, n) for n in (1, 8, 9, 11, 100)] == [1, 4, 5, 5, 5]


def test_the_state_of_a_hit_is_reserved_besides_the_one_to_be_computed() -> None:
    groups = (Group("full", 2), Group("window", 2, window=7), Group("mamba", 2))
    engine = EngineConfig("E", groups, 16, chunk_tokens=3)
    assert [reserved_blocks(engine, n) for n in (2, 3, 14, 16)] == [3, 6, 15, 16]
    assert longest_prompt((engine,), 1) == 14


DRAFTED = {"num_blocks": 99, "drafts": 2, "match_unit": 1}


@pytest.mark.parametrize(
    ("groups", "chunk_tokens", "hit", "blocks"),
    [
        # By hand: 3 tokens of a step with drafts after the hit, and 2 ahead of them. Attention has
        # a block for each; of a window, the block before the hit counts. Mamba has the state of
        # the hit, its copy, and 2 for the drafts; where the step passes a block, one more.
        ((Group("full", 1, eagle=True), Group("mamba", 8)), 3, 3, 8 + 4),
        ((Group("full", 1, eagle=True), Group("mamba", 8)), 8, 6, 11 + 5),
        (
            (
                *(Group("full", 1, eagle=True), Group("window", 1, window=2, eagle=True)),
                Group("mamba", 8),
            ),
            *(5, 6, 11 + 6 + 5),
        ),
    ],
)
def test_the_step_after_a_hit_has_the_width_of_one_with_drafts(
    groups: tuple[Group, ...], chunk_tokens: int, hit: int, blocks: int
) -> None:
    engine = EngineConfig("E", groups, chunk_tokens=chunk_tokens, **DRAFTED)
    assert blocks_with_hit(engine, hit, hit + 1) == blocks


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


def test_where_it_is_queued_it_never_finishes() -> None:
    faults = [FAULTS["impossible_fit_waits"]]
    with pytest.raises(Violated, match=r"step_makes_progress: .* reject r0 \(preempted\)"):
        under(faults, alone, FULL, Job("r0", "a" * (longest_prompt(FULL.engines, 1) + 1)))


def test_an_oversized_cluster_draws_jobs_that_do_not_fit() -> None:
    cluster = CLUSTERS["oversized"]
    job = find(
        jobs(cluster, "r0"),
        lambda job: len(job.prompt) > longest_prompt(cluster.engines, job.max_tokens),
        settings=settings(max_examples=200, database=None),
    )
    assert len(job.prompt) <= longest_prompt(cluster.engines, job.max_tokens) + 2


def test_lengths_are_the_boundaries_their_neighbours_and_the_longest() -> None:
    engine = EngineConfig("E", (Group("full", 4),), num_blocks=99)
    assert prompt_lengths((engine,), 40) == [1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 40]
    assert prompt_lengths((engine,), 4) == [1, 3, 4]


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


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(lambda p: p == "aabb", id="repeats"),
        pytest.param(lambda p: p.startswith("aabb") and len(p) > 4, id="extends"),
        pytest.param(lambda p: p[:3] == "aab" and p[3:4] not in ("b", ""), id="parts inside"),
        pytest.param(lambda p: p[:2] == "aa" and p[2:3] == "c", id="parts at a boundary"),
        pytest.param(lambda p: p and p[0] == "c", id="fresh"),
        pytest.param(lambda p: len(p) == 8, id="fills the pool"),
    ],
)
def test_each_shape_of_prompt_is_drawn(wanted: object) -> None:
    strategy = prompts(FULL.engines, 8, ("aabb",))
    prompt = find(strategy, wanted, settings=settings(max_examples=500, database=None))  # type: ignore[arg-type]
    assert len(prompt) <= 8


@given(jobs(CLUSTERS["pd-extra-keys"], "r1", ["ab", "ab.."], embeds=False))
def test_with_extra_keys_only_the_next_turn_contains_an_answer(job: Job) -> None:
    """An answer has no form for each key."""
    assert "." not in job.prompt


def test_embeddings_are_drawn_on_request_only() -> None:
    few = settings(max_examples=50, database=None)
    assert find(jobs(PD, "r0"), lambda job: job.embeds, settings=few).embeds

    @few
    @given(st.data())
    def check(data: st.DataObject) -> None:
        assert not data.draw(jobs(PD, "r0", embeds=False)).embeds

    check()


def test_a_pool_too_small_for_one_token_is_bad_usage() -> None:
    tiny = Cluster("tiny", (EngineConfig("E", (Group("full", 2), Group("full", 2)), num_blocks=2),))
    with pytest.raises(UsageError, match=r"Not even .* Use a larger num_blocks\."):
        find(jobs(tiny, "r0"), lambda _job: True, settings=settings(database=None))
