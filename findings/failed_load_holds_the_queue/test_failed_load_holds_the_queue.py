"""vLLM 0.32.0, NixlConnector, sliding-window layers, kv_load_failure_policy recompute.

D loads two prompts. The load of the first one fails, and its blocks are freed. To compute a prompt
takes blocks for all of its tokens in each group, and to load it only the last window. So the first
request may not fit any more, and it is still at the head of the queue of requests that hold blocks.
Each step ends at it. The second request has its prompt, needs one free block, and never runs.
"""

from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "waits for ever"

BLOCK_SIZE = 16
WINDOW = 16
POOL = 7
"""Blocks that requests can have; the null block is one more."""
LONG, SHORT = 40, 16
"""Prompts, in tokens. The long one takes 4 blocks to load and 6 to compute."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose failed load has lost all blocks leaves the queue of those that hold some."""
    released = Scheduler._handle_blocked_waiting_request

    def handled(self: Any, request: Request) -> bool:
        held = self._holds_kv_blocks(request)
        ready = released(self, request)
        return ready and not (held and not self._holds_kv_blocks(request))

    monkeypatch.setattr(Scheduler, "_handle_blocked_waiting_request", handled)


def test_a_loaded_request_runs_beside_one_whose_load_failed() -> None:
    config = create_vllm_config(max_model_len=64, kv_load_failure_policy="recompute")
    cache = make_kv_cache_config(BLOCK_SIZE, swa_enabled=True, sw_size=WINDOW, num_blocks=POOL + 1)
    decode = create_scheduler(config, kv_cache_config=cache)
    for number, tokens in ((1, LONG), (2, SHORT)):
        request = create_request(number, tokens, max_tokens=1, do_remote_prefill=True)
        blocks = list(range(1, -(-tokens // BLOCK_SIZE) + 1))
        request.kv_transfer_params["remote_block_ids"] = (blocks, blocks[-1:])
        request.kv_transfer_params["remote_num_tokens"] = tokens
        decode.add_request(request)
    output = decode.schedule()
    decode.update_from_output(output, create_model_runner_output([]))
    assert set(output.kv_connector_metadata.reqs_to_recv) == {"id-1", "id-2"}
    ran = create_model_runner_output([], finished_recving={"id-1", "id-2"})
    ran.kv_connector_output.failed_recving = {"id-1"}
    decode.update_from_output(decode.schedule(), ran)
    for _ in range(STEPS):
        output = decode.schedule()
        reqs = [decode.requests[name] for name in output.num_scheduled_tokens]
        decode.update_from_output(output, create_model_runner_output(reqs))
    free = decode.kv_cache_manager.block_pool.get_num_free_blocks()
    waits = sorted(decode.requests)
    assert not waits, (
        f"D runs nothing with {free} of {POOL} blocks free: after {STEPS} steps {waits} are not "
        "served, although 'id-2' is loaded and fits. It waits for ever"
    )
