"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer, speculative decoding on D.

D's answer ends by its length. The last step of D accepts more drafts than the answer needs. The
scheduler cuts off the surplus but still counts it as computed, and returns this count to the
router. The next turn has other tokens at these positions, and P uses D's KV of the drafts for them.
(With async scheduling, the tokens of a step in flight are counted too.)
"""

from typing import Any

import pytest
from vllm.config import SpeculativeConfig
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
    NixlPullConnectorScheduler,
)
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.turns import first_turn, step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "of which the conversation ends after"

PROMPT, ANSWER, NEXT = 100, 18, 30  # tokens
DRAFTS = 3


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """D offers no more tokens than its request has."""
    released = NixlPullConnectorScheduler.request_finished

    def finished(self: Any, request: Any, block_ids: Any) -> Any:
        delay, params = released(self, request, block_ids)
        if params:
            settled = request.num_computed_tokens - request.num_in_flight_tokens
            params["remote_num_tokens"] = min(settled, request.num_tokens)
        return delay, params

    monkeypatch.setattr(NixlPullConnectorScheduler, "request_finished", finished)


def make_scheduler(drafts: int = 0) -> Scheduler:
    config = create_vllm_config(
        max_num_batched_tokens=4096,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"bidirectional_kv_xfer": True},
    )
    if drafts:
        config.speculative_config = SpeculativeConfig(method="ngram", num_speculative_tokens=drafts)
    return create_scheduler(config, num_blocks=1000)


def test_p_loads_what_the_conversation_has() -> None:
    prefill, decode = make_scheduler(), make_scheduler(DRAFTS)
    held = first_turn(prefill, decode, PROMPT, ANSWER)
    answered = PROMPT + ANSWER
    prefill.reset_prefix_cache()
    request = create_request(2, answered + NEXT, answered, max_tokens=1)
    request.kv_transfer_params = held
    prefill.add_request(request)
    step(prefill)
    step(prefill, finished_recving={"id-2"})
    output, _ = step(prefill)
    (to_run,) = output.scheduled_new_reqs
    assert to_run.num_computed_tokens <= answered, (
        f"P continues after {to_run.num_computed_tokens} tokens that D holds, of which the "
        f"conversation ends after {answered}: what follows are drafts that were cut off, and "
        "the next turn has other tokens there"
    )
