"""vLLM 0.32.0, async scheduling and a KV connector that loads within the step, with
`kv_load_failure_policy` recompute. Reported as vllm#45138 and vllm#49250.

The connector's worker reports with a step's output that it could not load some blocks.
`_update_requests_with_invalid_blocks` reduces the computed tokens to the start of the first of
them. It does not change the placeholders, also not the placeholder of the failed step, nor the step
that was dispatched meanwhile. The token of that step, computed on KV that was never loaded, is
emitted. The last token of the request is not, and the engine waits for it for ever. The request
also hangs without a second step in flight.
"""

from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    MockKVConfig,
    MockKVConnector,
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "after its load has failed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
MAX_MODEL_LEN = 20 * BLOCK_SIZE
NUM_LOADED = 2 * BLOCK_SIZE
NUM_PROMPT = NUM_LOADED + 8
MAX_TOKENS = 3
GOOD, POISONED = 7, 902


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps in flight of a request with a failed load are stale and dropped."""
    released = Scheduler._handle_invalid_blocks

    def handle(self: Any, *args: Any, **named: Any) -> set[str]:
        failed: set[str] = released(self, *args, **named)
        for name in failed:
            request = self.requests[name]
            request.num_stale_output_tokens = request.num_in_flight_tokens
            request.drop_stale_output = True
            request.num_output_placeholders = 0
        return failed

    monkeypatch.setattr(Scheduler, "_handle_invalid_blocks", handle)


@pytest.mark.parametrize("steps_behind", [0, 1])
def test_a_failed_load(steps_behind: int) -> None:
    """The load of a request fails, with this number of steps dispatched after the step of the
    load."""
    config = create_vllm_config(
        max_num_batched_tokens=256,
        max_model_len=MAX_MODEL_LEN,
        kv_connector="MockKVConnector",
        kv_connector_module_path=MockKVConnector.__module__,
        kv_connector_extra_config={"matched_tokens": NUM_LOADED, "is_async": False},
        kv_load_failure_policy="recompute",
        kv_role="kv_both",
    )
    config.scheduler_config.async_scheduling = True  # the CPU's platform sets it to False
    scheduler, request = create_scheduler(config, NUM_BLOCKS), create_request(1, NUM_PROMPT)
    request.max_tokens = MAX_TOKENS
    scheduler.add_request(request)
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"id-1": NUM_PROMPT - NUM_LOADED}
    scheduler.connector.config = MockKVConfig(matched_tokens=0)
    behind = [scheduler.schedule() for _ in range(steps_behind)]
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("id-1")
    failed = set(blocks[: NUM_LOADED // BLOCK_SIZE])
    ran = create_model_runner_output([request], invalid_block_ids=failed, token_id=POISONED)
    scheduler.update_from_output(step, ran)
    for other in behind:
        ran = create_model_runner_output([request], token_id=POISONED)
        scheduler.update_from_output(other, ran)
    for _ in range(MAX_TOKENS + 3):
        step = scheduler.schedule()
        if step.num_scheduled_tokens:
            ran = create_model_runner_output([request], token_id=GOOD)
            scheduler.update_from_output(step, ran)
    emitted, ended = list(request.output_token_ids), request.is_finished()
    assert (emitted, ended) == ([GOOD] * MAX_TOKENS, True), (
        f"after its load has failed the request of {MAX_TOKENS} tokens emits {emitted}, "
        f"where {POISONED} was computed on KV never loaded, and "
        f"{'ends' if ended else 'never ends'}"
    )
