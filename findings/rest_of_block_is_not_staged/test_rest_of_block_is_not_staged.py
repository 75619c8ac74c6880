"""vLLM 0.32.0, NixlConnector with `kv_buffer_device="cpu"` on a device, and a prompt that is
computed in chunks: P copies a block to its buffer on the host when the block is new. Where a chunk
ends inside a block, the next chunk fills the block, and nobody copies it again. For the other
tokens D reads what P's block had before.

`NixlBaseConnectorScheduler._build_save_meta` takes the blocks to copy from the new blocks of a step
alone.

Here the scheduler and its side of NixlConnector are the real ones. On a CPU alone vLLM uses no
buffers, so `use_host_buffer` is set by hand. No worker is needed: which blocks a step fills follows
from the tokens that it computes.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "filled after they were copied to the host"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_TOKENS = 60
CHUNKS = {"whole blocks": 32, "part of a block": 24}
"""Tokens of a step (`max_num_batched_tokens`)."""


def make_scheduler(chunk: int) -> Scheduler:
    """Make P's scheduler."""
    config = create_vllm_config(max_num_batched_tokens=chunk, kv_role="kv_both")
    config.kv_transfer_config.kv_buffer_device = "cpu"
    scheduler = create_scheduler(config, NUM_BLOCKS)
    # As on CUDA, or any device that is not the CPU, with this `kv_buffer_device`.
    scheduler.connector.connector_scheduler.use_host_buffer = True
    return scheduler


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_block_is_copied_when_it_is_filled(chunk: str) -> None:
    scheduler = make_scheduler(CHUNKS[chunk])
    request = create_request(1, NUM_TOKENS, do_remote_decode=True)
    scheduler.add_request(request)
    filled: dict[int, int] = {}  # the last step that writes to a block of the prompt
    copied: dict[int, int] = {}  # the last step after which it is copied to the host
    computed = 0
    for step in range(4):
        output = scheduler.schedule()
        tokens = output.num_scheduled_tokens.get("id-1", 0)
        if not tokens:
            break
        (table,) = scheduler.kv_cache_manager.get_block_ids("id-1")
        first, last = computed // BLOCK_SIZE, (computed + tokens - 1) // BLOCK_SIZE
        filled |= dict.fromkeys(table[first : last + 1], step)
        computed += tokens
        for meta in output.kv_connector_metadata.reqs_to_save.values():
            copied |= {block: step for group in meta.local_block_ids for block in group}
        ran = create_model_runner_output([request])
        ran.sampled_token_ids = [[7]] if computed == NUM_TOKENS else [[]]
        scheduler.update_from_output(output, ran)
    assert computed == NUM_TOKENS
    late = sorted(block for block, step in filled.items() if copied.get(block, -1) < step)
    assert not late, f"{chunk}: blocks {late} were {FAILS_WITH}"
