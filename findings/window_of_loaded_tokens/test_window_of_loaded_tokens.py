"""vLLM 0.32.0, NixlConnector, a model with sliding-window layers and no Mamba layers.

D loads the KV of all N prompt tokens and computes token N again, to sample from it. P and D both
compute the needed window as if token N + 1 came next. Token N reads one token further to the left,
down to token N - window + 1. If a block ends with that token, P has freed the block and D has the
null block in its place. Token N then attends to the content of the null block.
"""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import (
    NixlBaseConnectorScheduler,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import SlidingWindowSpec

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "attend to the null block, at these positions"

BLOCK_SIZE = 16
WINDOW = 128
WINDOW_GROUP = 1
PROMPT_LENGTHS = range(144, 160)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """P leaves one token to D for a window too, as it does for a Mamba state."""
    released = NixlBaseConnectorScheduler._prefill_backoff

    def backoff(self: Any) -> Any:
        groups = self.kv_cache_config.transfer_groups
        windowed = any(isinstance(g.kv_cache_spec, SlidingWindowSpec) for g in groups)
        return max(released(self), int(windowed))

    monkeypatch.setattr(NixlBaseConnectorScheduler, "_prefill_backoff", backoff)


def make_scheduler(role: str) -> Scheduler:
    config = create_vllm_config(max_num_batched_tokens=4096, kv_role=role)
    cache = make_kv_cache_config(BLOCK_SIZE, swa_enabled=True, sw_size=WINDOW, num_blocks=1000)
    return create_scheduler(config, kv_cache_config=cache)


def step(scheduler: Scheduler, **reports: Any) -> tuple[SchedulerOutput, Any]:
    """Take one step: sample a token for each scheduled request, and report the transfers."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs, **reports)
    return output, scheduler.update_from_output(output, ran)


def transfer(prefill: Scheduler, decode: Scheduler, length: int) -> Any:
    """P computes a prompt of this length, and D loads it. Returns the data with which D's worker
    runs the request."""
    ours, theirs = (create_request(length, length, max_tokens=1) for _ in range(2))
    theirs.kv_transfer_params = {"do_remote_decode": True}
    prefill.add_request(theirs)
    _, outputs = step(prefill)
    ours.kv_transfer_params = outputs[0].outputs[0].kv_transfer_params
    decode.add_request(ours)
    output, _ = step(decode)
    assert ours.request_id in output.kv_connector_metadata.reqs_to_recv
    step(decode, finished_recving={ours.request_id})
    step(prefill, finished_sending={ours.request_id})
    output, _ = step(decode)
    (to_run,) = output.scheduled_new_reqs
    assert output.num_scheduled_tokens == {ours.request_id: 1}
    assert to_run.num_computed_tokens == length - 1
    return to_run


def test_what_the_window_of_the_last_token_reads_is_there() -> None:
    prefill, decode = make_scheduler("kv_producer"), make_scheduler("kv_consumer")
    null_block = decode.kv_cache_manager.block_pool.null_block.block_id
    missing = {}
    for length in PROMPT_LENGTHS:
        to_run = transfer(prefill, decode, length)
        # The token at position p attends to positions p - WINDOW + 1 to p.
        first_read = to_run.num_computed_tokens - WINDOW + 1
        table = to_run.block_ids[WINDOW_GROUP]
        read = {p: table[p // BLOCK_SIZE] for p in range(first_read, length)}
        nulls = [p for p, block in read.items() if block == null_block]
        if nulls:
            missing[length] = nulls
    assert not missing, (
        f"Of prompts of {PROMPT_LENGTHS.start} to {PROMPT_LENGTHS.stop - 1} tokens (window "
        f"{WINDOW}, blocks of {BLOCK_SIZE}), the last tokens of those of {list(missing)} attend to "
        f"the null block, at these positions: {missing}"
    )
