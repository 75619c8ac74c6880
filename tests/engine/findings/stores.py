"""Findings on an engine with a store."""

import shutil
from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import INSIDE, Engine, Seen, alone
from tests.engine.workloads import tokens

STORE = "tests.engine.failing_store"
FILES = "store"
"""In the working directory of the engine's process."""

KERNEL = 32


def empty(_llm: Any) -> None:
    """The store has nothing yet."""
    shutil.rmtree(FILES, ignore_errors=True)


def kernel_blocks(_llm: Any) -> None:
    """Kernels take blocks of one size, as those of some GPU backends do."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda _=None: [KERNEL])


KERNEL_BLOCKS = (["call", f"{__name__}:kernel_blocks"],)

EXAMPLE = {
    "num_gpu_blocks_override": 40,
    "kv_transfer_config": {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": FILES},
    },
}
"""An engine with vLLM's example of a store."""

FAILING = {
    "num_gpu_blocks_override": 40,
    "kv_transfer_config": {
        "kv_connector": "FailingStore",
        "kv_connector_module_path": STORE,
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"shared_storage_path": FILES},
    },
}
"""One with vLLM's example of a store, whose loads can be made to fail."""


@alone("full", EXAMPLE)
def example_loads_another_file(engine: Engine) -> Iterator[Seen]:
    """A prompt of whole blocks and one token: the answer with an empty store, and with one that has
    the first block."""
    prompt = tokens(3, 65)
    engine.inside(f"{__name__}:empty")
    cold = engine.ask(prompt).tokens
    engine.inside(f"{__name__}:empty")
    assert engine.reset()
    engine.ask(prompt[:40])
    assert engine.reset()
    yield Seen("tokens", engine.ask(prompt).tokens, cold)


@alone("full", EXAMPLE | {"block_size": 2 * KERNEL}, before=KERNEL_BLOCKS)
def example_takes_blocks_of_a_kernel(engine: Engine) -> Iterator[Seen]:
    """Kernels take smaller blocks than the engine has: whether a prompt of more than a block is
    answered, first and when it is loaded."""
    prompt = tokens(3, 2 * KERNEL + 8)
    engine.inside(f"{__name__}:empty")
    cold = engine.ask(prompt).tokens
    yield Seen("a prompt is answered", bool(cold), True)
    if cold:
        assert engine.reset()
        yield Seen("tokens", engine.ask(prompt).tokens, cold, False)


def loaded(engine: Engine, prompt: list[int], answer: int) -> Iterator[Seen]:
    """A prompt is loaded, which does not fail yet; then all blocks have other content, and loads
    fail."""
    engine.inside(f"{STORE}:fail", False)
    engine.inside(f"{__name__}:empty")
    cold = engine.ask(prompt, answer).tokens
    assert engine.reset()
    yield Seen("tokens, loaded", engine.ask(prompt, answer).tokens, cold, wrong=False)
    assert engine.reset()
    engine.fill(200, 6)
    engine.inside(f"{STORE}:fail", True)


@alone("full", FAILING, named=("request_reads_its_own_prefix",))
def failed_load_stays_cached(engine: Engine) -> Iterator[Seen]:
    """A load within the step fails, and its request is aborted before it computes the blocks again:
    the next request with the prompt."""
    prompt = tokens(3, 200)
    [first] = loaded(engine, prompt, 6)
    yield first
    engine.take(["add", "aborted", prompt, {}], ["steps", 1], ["abort", "aborted"])
    engine.inside(f"{STORE}:fail", False)
    yield Seen("tokens of the next request", engine.ask(prompt).tokens, first.right)


@alone("full", FAILING, before=(["call", f"{INSIDE}:overlapping_steps"],))
def poisoned_step_counts(engine: Engine) -> Iterator[Seen]:
    """Steps overlap, and a load within one of them fails. With the patch the tokens of its request
    are still wrong: the model runner keeps those of the failed steps."""
    prompt = tokens(3, 200)
    yield from loaded(engine, prompt, 3)
    yield Seen("how the request ends", engine.ask(prompt, 3).reason, "length")


TIER = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 2**24,
        "spec_name": "CopyingSpec",
        "spec_module_path": "tests.engine.findings.copying",
    },
}


@alone(
    "full",
    {"num_gpu_blocks_override": 40, "kv_transfer_config": TIER},
    named=("engine_survives",),
)
def forced_reset_ends_offloading(engine: Engine) -> Iterator[Seen]:
    """The prefix cache is reset while a request runs, and its prompt is in the offloading tier."""
    prompt = tokens(3, 100)
    cold = engine.ask(prompt).tokens
    engine.send("again", prompt, 6)
    engine.take(["steps", 3], ["reset", "running"])
    yield Seen("tokens after the reset", engine.answer("again").tokens, cold)


@alone(
    "mamba",
    {
        "max_model_len": 192,
        "mamba_cache_mode": "align",
        "num_gpu_blocks_override": 9,
        "kv_transfer_config": {
            "kv_connector": "Offering",
            "kv_connector_module_path": "tests.engine.findings.offering",
            "kv_role": "kv_both",
        },
    },
    named=("engine_survives",),
)
def loaded_state_not_predicted(engine: Engine) -> Iterator[Seen]:
    """A store loads a Mamba state within the step, beside a request that runs, and one block less
    is free than the step takes."""
    engine.send("other", tokens(1, 70), 20)
    engine.take(["steps", 2])
    free = engine.inside("free_blocks")
    assert free == 3, f"{free} blocks are free"
    engine.send("loads", tokens(2, 64 + 5), 1)
    yield Seen("how the request ends", engine.answer("loads").reason, "length")
