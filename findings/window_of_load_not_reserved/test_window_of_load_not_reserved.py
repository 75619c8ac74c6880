"""vLLM 0.32.0, NixlConnector, and layers of full attention, of a sliding window, and of Mamba. No
public report was found.

D loads two prompts. For a group of windows the admission check counts no more blocks than one
request can hold at a time, and takes the length of the table off, in which the positions before the
window have the null block. So behind the window it counts nothing, and no block is kept free for
the window's next block. The second load takes it. Then both requests are loaded and wait for a
block, none runs that could be preempted, and they never run.
"""

from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "wait for ever"

BLOCK_SIZE = 16
WINDOW = 16
NUM_LOADED = 4 * BLOCK_SIZE
"""Tokens that P offers; the prompt has one more."""
MAX_MODEL_LEN = NUM_LOADED + BLOCK_SIZE
CHUNK = BLOCK_SIZE
"""Tokens of a step. With the window it limits how many blocks a request holds at a time."""
POOL = 14
"""Blocks that requests can have, beside the null block. A load takes 4, 1 and 1; the last token of
the prompt needs one more of each group."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is about blocks that are held, so the positions before the window come on top."""
    released = SingleTypeKVCacheManager.get_num_blocks_to_allocate

    def to_allocate(self: Any, *args: Any, **given: Any) -> Any:
        limit = self.max_admission_blocks_per_request
        if limit is None or not given.get("apply_admission_cap"):
            return released(self, *args, **given)
        computed = args[3]
        self.max_admission_blocks_per_request = (
            limit + self.get_num_skipped_tokens(computed) // self.block_size
        )
        try:
            return released(self, *args, **given)
        finally:
            self.max_admission_blocks_per_request = limit

    monkeypatch.setattr(SingleTypeKVCacheManager, "get_num_blocks_to_allocate", to_allocate)


def make_scheduler() -> Scheduler:
    """Make D's scheduler."""
    config = create_vllm_config(max_num_batched_tokens=CHUNK, max_model_len=MAX_MODEL_LEN)
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE,
        swa_enabled=True,
        mamba_enabled=True,
        sw_size=WINDOW,
        num_blocks=POOL + 1,
        mamba_cache_mode="align",
    )
    return create_scheduler(config, kv_cache_config=cache)


def test_two_loaded_prompts_are_served() -> None:
    decode = make_scheduler()
    for number in (1, 2):
        request = create_request(number, NUM_LOADED + 1, max_tokens=1, do_remote_prefill=True)
        request.kv_transfer_params["remote_block_ids"] = ([1, 2, 3, 4], [5], [6])
        request.kv_transfer_params["remote_num_tokens"] = NUM_LOADED
        decode.add_request(request)
    loading: set[str] = set()
    for _ in range(STEPS):
        output = decode.schedule()
        reqs = [decode.requests[name] for name in output.num_scheduled_tokens]
        ran = create_model_runner_output(reqs, finished_recving=loading)
        decode.update_from_output(output, ran)
        loading = set(output.kv_connector_metadata.reqs_to_recv)
    free = decode.kv_cache_manager.block_pool.get_num_free_blocks()
    waits = sorted(decode.requests)
    assert not waits, (
        f"D runs nothing with {free} of {POOL} blocks free: after {STEPS} steps {waits}, which are "
        "loaded, are not served. They wait for ever"
    )
