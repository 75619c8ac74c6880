"""vLLM 0.32.0, NixlConnector, and Mamba layers in align mode. Reported as vllm#52773.

D's attention cache covers all tokens that P offers, but D has no state at their end. vLLM asks the
connector for tokens after this hit, and there are none. Because the state is missing, vLLM then
reduces the hit to the common hit of all groups, and does not ask the connector again. D computes
the whole prompt, although P has its state. The output is correct.
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

FAILS_WITH = "computes it from the start"

BLOCK_SIZE = 16
LONG, SHORT = 6 * BLOCK_SIZE, 4 * BLOCK_SIZE
"""Tokens that P offers, of two prompts with the same prefix. D computes one more token."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connector has nothing after a hit without a state, it is asked after the shorter hit
    that all groups have."""
    released = Scheduler._get_local_prefix_cache_hit

    def hit(self: Any, request: Request, *more: Any) -> Any:
        blocks, num_local, boundary, diverged = released(self, request, *more)
        if diverged and self.connector.get_num_new_matched_tokens(request, num_local)[0] == 0:
            return *self.kv_cache_manager.get_computed_blocks(request), False
        return blocks, num_local, boundary, diverged

    monkeypatch.setattr(Scheduler, "_get_local_prefix_cache_hit", hit)


def make_request(number: int, num_offered: int) -> Request:
    """Make a request with one token more than P offers. P has its state in block 99."""
    request = create_request(number, num_offered + 1, num_offered + 1, 1, do_remote_prefill=True)
    blocks = (list(range(1, num_offered // BLOCK_SIZE + 1)), [99])
    request.kv_transfer_params["remote_block_ids"] = blocks
    request.kv_transfer_params["remote_num_tokens"] = num_offered
    return request


def test_d_loads_the_state_that_p_offers() -> None:
    config = create_vllm_config(max_num_batched_tokens=4096)
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    decode, long = create_scheduler(config, kv_cache_config=cache), make_request(1, LONG)
    decode.add_request(long)
    decode.update_from_output(decode.schedule(), create_model_runner_output([]))
    loaded = create_model_runner_output([], finished_recving={"id-1"})
    decode.update_from_output(decode.schedule(), loaded)
    output = decode.schedule()
    assert output.num_scheduled_tokens == {"id-1": 1}
    decode.update_from_output(output, create_model_runner_output([long]))
    assert not decode.requests

    decode.add_request(make_request(2, SHORT))
    output = decode.schedule()
    to_load = output.kv_connector_metadata.reqs_to_recv["id-2"].local_block_ids
    computed = output.num_scheduled_tokens.get("id-2", 0)
    assert any(to_load), (
        f"P offers {SHORT} tokens with their state, and D's attention cache has them all; D "
        f"loads no state, drops the hit and computes it from the start: {computed} tokens"
    )
    assert computed == 0
