"""vLLM 0.32.0, NixlConnector, Mamba layers in align mode, and prefix hits finer than a block
(`--prefix-match-unit`). No public report was found.

D loads two prompts that end inside a block. When a load has ended, D caches the loaded state, and
so the request needs one more block: a copy of the state, which the request would overwrite. While
it loads, nothing is kept free for this copy. So the second load may take the last blocks. Then both
requests are loaded and wait for a block, none runs that could be preempted, and they never run.
"""

from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.request import Request, RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "wait for ever"

BLOCK_SIZE = 32
HASH_SIZE = 16
MAX_MODEL_LEN = 2 * BLOCK_SIZE
NUM_LOADED = HASH_SIZE
"""Tokens that P offers; the prompt has one more. They end inside a block."""
POOL = 4
"""Blocks that requests can have: two of attention and two for states. The null block is one
more."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request loads, a block for each copy that it will need is kept free."""
    released = Scheduler._request_remaining_blocks

    def remaining(self: Any, request: Request) -> Any:
        loads = request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
        groups = self.kv_cache_config.kv_cache_groups
        copies = sum(
            isinstance(group.kv_cache_spec, MambaSpec)
            and request.num_computed_tokens % group.kv_cache_spec.block_size > 0
            for group in groups
        )
        return released(self, request) + copies * loads

    monkeypatch.setattr(Scheduler, "_request_remaining_blocks", remaining)


def make_scheduler() -> Scheduler:
    """Make D's scheduler."""
    config = create_vllm_config(block_size=BLOCK_SIZE, max_model_len=MAX_MODEL_LEN)
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, num_blocks=POOL + 1, mamba_cache_mode="align"
    )
    return create_scheduler(config, kv_cache_config=cache, hash_block_size=HASH_SIZE)


def test_two_loaded_prompts_are_served() -> None:
    decode = make_scheduler()
    for number in (1, 2):
        request = create_request(
            number, NUM_LOADED + 1, max_tokens=1, do_remote_prefill=True, block_size=HASH_SIZE
        )
        request.kv_transfer_params["remote_block_ids"] = ([1], [2])
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
