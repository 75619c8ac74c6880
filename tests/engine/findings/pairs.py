"""Findings on P and D, which loads over NIXL."""

import time
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import INSIDE, NOT_SERVED, PREFILL, Engine, Seen, between
from tests.engine.findings.stores import KERNEL, KERNEL_BLOCKS
from tests.engine.pair import HANGS_S
from tests.engine.process import Output
from tests.engine.workloads import DRAFTS, tokens

FULL, MAMBA = ("full", {}), ("mamba2", {})
HYBRIDS = (["call", f"{INSIDE}:hybrids_over_nixl"],)


def transferred(p: Engine, d: Engine, prompt: list[int], answer: int = 6) -> Output:
    """D's answer to a prompt that P has computed."""
    return d.ask(prompt, answer, transfer=p.ask(prompt, 1, transfer=PREFILL).transfer)


# A hit inside a block.

UNIT, BLOCK_SIZE = 32, 64
WAITS_S = 60.0
FINER = {"block_size": BLOCK_SIZE, "prefix_match_unit": UNIT}
SMALL = {"max_model_len": 2 * BLOCK_SIZE, "num_gpu_blocks_override": 5}


@between(("mamba2", FINER), ("mamba2", FINER | SMALL), before=HYBRIDS)
def copy_of_load_not_reserved(p: Engine, d: Engine) -> Iterator[Seen]:
    """D loads two prompts that end inside a block at once, and then lacks a block for either."""
    prompts = {"one": tokens(8, UNIT + 1), "two": tokens(9, UNIT + 1)}
    for name, prompt in prompts.items():
        d.send(name, prompt, 1, p.ask(prompt, 1, transfer=PREFILL).transfer)
    served: dict[str, Output] = {}
    ends = time.monotonic() + WAITS_S
    while len(served) < len(prompts) and time.monotonic() < ends:
        served |= d.take(["steps", 100]).outputs
    for name, prompt in prompts.items():
        got = served[name].tokens if name in served else NOT_SERVED
        yield Seen(f"token of D, prompt {name}", got, p.ask(prompt, 1).tokens)


# Prompts of embeddings.

EMBEDS = ("full", {"enable_prompt_embeds": True})
LENGTH = 100


@between(EMBEDS, EMBEDS)
def embeddings_not_loaded(p: Engine, d: Engine) -> Iterator[Seen]:
    """A prompt of embeddings, on P and on D: D does not load what P has computed."""
    prefilled = embedded(p, "prefill", 1, PREFILL)
    got = embedded(d, "decode", 6, prefilled.transfer)
    yield Seen("tokens that D loads", d.inside("metric", "external_prefix_cache_hits"), LENGTH)
    yield Seen("tokens of D", got.tokens, embedded(p, "plain", 6, None).tokens, wrong=False)


def embedded(engine: Engine, name: str, answer: int, transfer: dict[str, Any] | None) -> Output:
    """The answer to the embeddings."""
    engine.inside(f"{__name__}:add_embeddings", name, answer, transfer)
    return engine.answer(name)


def add_embeddings(llm: Any, name: str, answer: int, transfer: dict[str, Any] | None) -> None:
    """A request with the embeddings arrives. This runs in the engine's process."""
    import torch
    from vllm import SamplingParams

    embeddings = torch.rand((LENGTH, 128), generator=torch.Generator().manual_seed(1)) - 0.5
    params = SamplingParams(
        max_tokens=answer,
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        extra_args=transfer and {"kv_transfer_params": transfer},
    )
    llm.llm_engine.add_request(name, {"prompt_embeds": embeddings}, params)


# Blocks of P and D of unequal size. With the patch D refuses P, and a request ends with an error.

WIDE, NARROW = ("full", {"block_size": 2 * KERNEL}), ("full", {"block_size": KERNEL})


@between(WIDE, NARROW, before=KERNEL_BLOCKS)
def end_trim_across_ratios(p: Engine, d: Engine) -> Iterator[Seen]:
    """A block of P is wider than a block of D, and the kernels of both need narrow ones: prompts
    that end in either half of P's last block."""
    for length, wrong in ((128, False), (96, True), (160, True)):
        sent = tokens(length, length)
        got = transferred(p, d, sent)
        other = bool(got.tokens) and got.tokens != p.ask(sent).tokens
        yield Seen(f"D's tokens are not P's, prompt of {length}", other, False, wrong)


@between(NARROW, WIDE, before=KERNEL_BLOCKS)
def longer_list_dies_across_ratios(p: Engine, d: Engine) -> Iterator[Seen]:
    """A block of D is wider than a block of P, and D dies of the padding in its last block: prompts
    that end in either half of it."""
    for length, wrong in ((128, False), (96, True)):
        got = transferred(p, d, tokens(length, length))
        dead = "AssertionError" in str(got.reason)
        yield Seen(f"D is dead after a prompt of {length}", dead, False, wrong)


# Mamba states.

LOADED = "external_prefix_cache_hits"
LONGER = ("mamba2", {"max_model_len": 512, "max_num_batched_tokens": 512})


@between(LONGER, LONGER, before=HYBRIDS, beside=("counter_counts_only_cached",))
def full_hit_gives_up_load(p: Engine, d: Engine) -> Iterator[Seen]:
    """D's attention cache has all that P offers but no state, and D computes the prompt: a prompt,
    and then its beginning. Its blocks are loaded again, with the state."""
    long = tokens(5, 6 * 64 + 1)
    short = long[: 4 * 64 + 1]
    transferred(p, d, long, 1)
    before = d.inside("metric", LOADED)
    got = transferred(p, d, short)
    yield Seen("tokens that D loads", d.inside("metric", LOADED) - before, len(short) - 1)
    yield Seen("tokens of D", got.tokens, p.ask(short).tokens, wrong=False)


@between(
    MAMBA,
    ("mamba2", {"max_model_len": 320, "num_gpu_blocks_override": 8}),
    before=HYBRIDS,
    named=("predicted_is_taken",),
    beside=("counter_counts_only_cached",),
)
def superseded_state_reserved(p: Engine, d: Engine) -> Iterator[Seen]:
    """D counts a block for a cached state that a request does not take: another request runs, and
    as many blocks are free as the next request takes."""
    first = tokens(5, 2 * 64 + 1)
    then = first[:128] + tokens(6, 6)
    transferred(p, d, first, 1)
    transfer = p.ask(then, 1, transfer=PREFILL).transfer
    d.send("other", tokens(7, 66), 28)
    d.take(["steps", 2])
    free = d.inside("free_blocks")
    assert free == 3, f"{free} blocks are free"
    d.send("next", then, 1, transfer)
    d.take(["steps", 1])
    status = d.inside("statuses")["next"]
    yield Seen("its status, while the other one runs", status, "WAITING_FOR_REMOTE_KVS")
    yield Seen("its token", d.answer("next").tokens, p.ask(then, 1).tokens, wrong=False)


# Conversations: D holds the blocks of an answer, and P loads them.

PROMPT = tokens(7, 150)
TTL_S = 2
HELD = {"kv_connector_extra_config": {"bidirectional_kv_xfer": True}}


def answered(p: Engine, d: Engine) -> Output:
    """D's answer of 40 tokens. P then has nothing of it in its cache."""
    answer = transferred(p, d, PROMPT, 40)
    ends = time.monotonic() + HANGS_S
    p.ask(tokens(1, 20), 1)
    while not p.reset():  # D's notification is not there yet
        assert time.monotonic() < ends, "P still holds the blocks that D has loaded."
        time.sleep(0.1)
        p.ask(tokens(1, 20), 1)
    p.fill(150, 8)
    return answer


@between(
    FULL,
    FULL,
    transfer={
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "bidirectional_kv_xfer": True,
            "decoder_kv_blocks_ttl": TTL_S,
        },
    },
)
def held_is_loaded_again(p: Engine, d: Engine) -> Iterator[Seen]:
    """A next turn comes after D's blocks have expired, and P waits for a read that it never
    begins."""
    first = answered(p, d)
    turn = [*PROMPT, *first.tokens, *tokens(8, 60)]
    cold = p.ask(turn, 1).tokens
    assert p.reset()
    time.sleep(TTL_S + 1)
    d.inside("idle", 1.0)
    got = p.ask(turn, 1, transfer=first.transfer)
    yield Seen("first token of the next turn", got.tokens or got.reason, cold)


@between(FULL, FULL, transfer=HELD)
def held_list_ends_with_prompt(p: Engine, d: Engine) -> Iterator[Seen]:
    """A prompt is sent again after its answer, and P loads the blocks of the answer's end; then
    comes a request for it that has nothing to do with D."""
    cold = p.ask(PROMPT).tokens
    assert p.reset()
    again = p.ask(PROMPT, transfer=answered(p, d).transfer)
    yield Seen("tokens of P, the prompt sent again", again.tokens, cold)
    yield Seen("tokens of P, a later plain request", p.ask(PROMPT).tokens, cold)


@between(
    MAMBA,
    MAMBA,
    before=HYBRIDS,
    transfer=HELD,
    named=("state_read_is_state_at_computed",),
    beside=("counter_counts_only_cached",),
)
def held_state_is_of_the_prompt(p: Engine, d: Engine) -> Iterator[Seen]:
    """A prompt is sent again after its answer, and P goes on from the state after the answer; then
    it is sent to a D that has nothing of it."""
    cold = p.ask(PROMPT).tokens
    assert p.reset()
    again = p.ask(PROMPT, 1, transfer=answered(p, d).transfer)
    d.take(["reset"])
    got = d.ask(PROMPT, transfer=again.transfer)
    yield Seen("tokens of D, the prompt sent again", got.tokens, cold)


# P writes to D.

LEASE_S = 1
TIMEOUT_S = 2
PUSHED = tokens(5, 150)


@between(
    ("full", {"max_model_len": 256, "num_gpu_blocks_override": 9}),
    FULL,
    transfer={
        "kv_connector": "NixlPushConnector",
        "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
    },
)
def lease_ends_under_writer(p: Engine, d: Engine) -> Iterator[Seen]:
    """P's lease ends while the write to D waits for a handshake, and D gets what is there later: a
    router sends a prompt to P and D at once, and D's process stands still for a while."""
    right = p.ask(PUSHED).tokens
    loads = p.ask(tokens(1, 40), 1, transfer=PREFILL).transfer
    p.inside("idle", LEASE_S + 0.5)
    assert p.reset()
    d.send("late", PUSHED, 6, loads)
    while not d.inside(f"{__name__}:knows_p"):
        d.take(["steps", 10])
    time.sleep(0.5)  # until its registration has left
    with d.stopped():
        p.send("late", PUSHED, 1, PREFILL)
        p.answer("late")
        p.inside("idle", LEASE_S + 0.5)
        p.fill(200, 2)
    got: list[int] = []
    for number in range(10):  # P is at work, and D asks whether the write is there
        p.ask(tokens(number, 40), 1)
        got = got or d.answer("late", limit_s=0.3).tokens
    yield Seen("wrong tokens of D", [] if got == right else got, [])


def knows_p(_llm: Any) -> bool:
    """Whether D has made its handshake with P. This runs in D's process."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return bool(get_kv_transfer_group().connector_worker._remote_agents)


@between(FULL, FULL, transfer={"kv_connector": "NixlPushConnector"})
def unneeded_prefill_is_not_reported(p: Engine, d: Engine) -> Iterator[Seen]:
    """A request ends on D before it is admitted, and P keeps its blocks: a request that is written
    to D, so that D knows P, and then one that D's user aborts."""
    right = p.ask(PUSHED).tokens
    assert p.reset()
    all_free = p.inside("free_blocks")
    p.send("served", PUSHED, 1, PREFILL)
    loads = p.answer("served").transfer
    d.send("served", PUSHED, 6, loads)
    d.answer("served", limit_s=1)
    p.inside("idle", 1.0)
    yield Seen("tokens of D", d.answer("served").tokens, right, wrong=False)
    yield Seen("free blocks of P, served", p.inside("free_blocks"), all_free, wrong=False)
    sent = tokens(6, 150)
    p.send("aborted", sent, 1, PREFILL)
    d.send("aborted", sent, 6, p.answer("aborted").transfer)
    d.take(["abort", "aborted"])
    d.inside("idle", 1.0)
    p.inside("idle", 2.0)
    yield Seen("free blocks of P, aborted on D", p.inside("free_blocks"), all_free)


@between(
    FULL,
    FULL,
    transfer={
        "kv_connector": "NixlPushConnector",
        "kv_connector_extra_config": {"push_registration_timeout": TIMEOUT_S},
    },
)
def write_awaited_for_ever(p: Engine, d: Engine) -> Iterator[Seen]:
    """P does not have a request any more, which P's user has aborted, and D waits for its write."""
    right = p.ask(PUSHED).tokens
    loads = p.ask(tokens(1, 40), 1, transfer=PREFILL).transfer
    p.send("lost", PUSHED, 1, PREFILL)
    p.take(["abort", "lost"])
    d.send("lost", PUSHED, 6, loads)
    got = d.answer("lost", limit_s=5 * TIMEOUT_S)
    yield Seen("tokens of D", got.tokens or got.reason, right)


# What D loads beside drafts and windows.

BLOCKS = 256 // 32


@between(
    ("full", {"max_model_len": 256}),
    (
        "full",
        {
            "max_model_len": 256,
            "num_gpu_blocks_override": BLOCKS + 1,
            "speculative_config": DRAFTS,
        },
    ),
    fresh=True,
)
def load_keeps_room_for_drafts(p: Engine, d: Engine) -> Iterator[Seen]:
    """D keeps blocks free for drafts beside a load that has room for them: a prompt that ends in
    the last block of D's pool, with all blocks free."""
    for length, wrong in ((200, False), (252, True)):
        sent = tokens(length, length)
        got = transferred(p, d, sent, 1)
        if not got.tokens:
            assert d.inside("free_blocks") == BLOCKS
        right = p.ask(sent, 1).tokens
        yield Seen(f"token of D, prompt of {length}", got.tokens or got.reason, right, wrong)


WINDOW = ("window", {"hf_overrides": {"sliding_window": 8}})


@between(WINDOW, WINDOW, named=("null_block_is_nobody",), beside=("counter_counts_only_cached",))
def window_of_loaded_tokens(p: Engine, d: Engine) -> Iterator[Seen]:
    """D computes the last prompt token again, and its window reads the null block: the prompts
    whose window begins with the last token of a block."""
    for length, wrong in ((70, False), (71, True), (72, False), (103, True)):
        sent = tokens(5 + length, length)
        got = transferred(p, d, sent)
        yield Seen(f"tokens of D, prompt of {length}", got.tokens, p.ask(sent).tokens, wrong)
