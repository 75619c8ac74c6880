"""Findings on one engine without a connector."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, Engine, Seen, alone
from tests.engine.workloads import tokens

EAGLE = {"method": "eagle", "model": "full", "num_speculative_tokens": 1}


@alone(
    "full",
    {"load_format": "dummy", "speculative_config": EAGLE},
    before=(["call", f"{INSIDE}:make", "full"],),
    named=("hit_is_the_longest", "repeated_prompt_hits"),
)
def eagle_drop_before_the_last_token(engine: Engine) -> Iterator[Seen]:
    """A prompt of full blocks is sent twice to an engine with an EAGLE drafter, and one that is a
    token longer."""
    for length, wrong in ((129, False), (128, True)):
        sent = tokens(length, length)
        first = engine.ask(sent)
        again = engine.ask(sent)
        yield Seen(f"hit tokens, prompt of {length}", again.cached, 96, wrong)
        yield Seen(f"tokens, prompt of {length}", again.tokens, first.tokens, wrong=False)


BLOCK_SIZE = 64
BLOCKS = 3 + 2


@alone(
    "mamba",
    {
        "block_size": BLOCK_SIZE,
        "max_model_len": 3 * BLOCK_SIZE,
        "mamba_cache_mode": "align",
        "num_gpu_blocks_override": BLOCKS + 1,
        "prefix_match_unit": 32,
    },
    named=("step_makes_progress",),
)
def hit_without_room_waits(engine: Engine) -> Iterator[Seen]:
    """A prompt is sent again, and its hit inside a block needs more blocks than the pool has."""
    prompt = tokens(4, 3 * BLOCK_SIZE - 1)
    first = engine.ask(prompt, 1).tokens
    again = engine.ask(prompt, 1)
    if not again.tokens:
        assert engine.inside("free_blocks") == BLOCKS
    yield Seen("token, the prompt sent again", again.tokens or again.reason, first)


@alone(
    "full",
    {
        "max_model_len": 256,
        "scheduling_policy": "priority",
        "max_num_batched_tokens": 96,
        "long_prefill_token_threshold": 64,
        "num_gpu_blocks_override": 9,
    },
    named=("cached_block_holds_its_key",),
)
def uncomputed_stays_cached(engine: Engine) -> Iterator[Seen]:
    """A request with higher priority preempts another one in the step that would compute its
    blocks. The preempted request hits a block that was never computed."""
    low, high = tokens(3, 200), tokens(4, 32)
    right = engine.ask(low, 4).tokens
    assert engine.reset()
    engine.fill(200, 3)
    answer = engine.take(
        ["add", "low", low, {"max_tokens": 4, "priority": 1}],
        ["steps", 1],
        ["add", "high", high, {"max_tokens": 4, "priority": 0}],
        ["run"],
    )
    yield Seen("tokens of the preempted request", answer.outputs["low"].tokens, right)
