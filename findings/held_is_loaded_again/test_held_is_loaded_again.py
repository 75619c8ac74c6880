"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer.

D keeps the blocks of a turn for the next turn, and P loads them. Then P is preempted, or the load
fails (D's blocks have expired, decoder_kv_blocks_ttl) and the policy is recompute. When P admits
the request again, it counts D's tokens as external again and waits for them. The connector starts
one transfer per request (`_remote_blocks_processed`), so no read begins and none will be reported.
The request waits for ever with its blocks. In the same situation D computes the tokens, because
`do_remote_prefill` was cleared.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.turns import first_turn, step
from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "and no read is in progress"

PROMPT, ANSWER, NEXT = 100, 40, 100  # tokens
STEPS = 10


def make_scheduler() -> Scheduler:
    config = create_vllm_config(
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"bidirectional_kv_xfer": True},
    )
    return create_scheduler(config, num_blocks=1000)


@pytest.mark.parametrize("case", ["load_fails", "preempted"])
def test_p_serves_a_turn_that_lost_what_it_loaded(case: str) -> None:
    prefill, decode = make_scheduler(), make_scheduler()
    turn = create_request(2, PROMPT + ANSWER + NEXT, PROMPT + ANSWER, max_tokens=1)
    held = first_turn(prefill, decode, PROMPT, ANSWER)
    assert held["do_remote_decode"]
    assert held["remote_num_tokens"] == PROMPT + ANSWER - 1
    turn.kv_transfer_params = held
    prefill.reset_prefix_cache()
    prefill.add_request(turn)
    output, _ = step(prefill)
    read = output.kv_connector_metadata.reqs_to_recv["id-2"]
    if case == "load_fails":  # the report of the worker when it declines an expired read
        invalid = set(read.local_block_ids[0])
        ran = create_model_runner_output([], None, {"id-2"}, invalid)
        ran.kv_connector_output.failed_recving = {"id-2"}
        prefill.update_from_output(prefill.schedule(), ran)
    else:
        step(prefill, finished_recving={"id-2"})
        output, _ = step(prefill)
        assert "id-2" in output.num_scheduled_tokens
        assert prefill.reset_prefix_cache(reset_running_requests=True)
    reads = []
    for _ in range(STEPS):
        if turn.is_finished():
            return
        output, _ = step(prefill)
        reads += list(output.kv_connector_metadata.reqs_to_recv)
    held_blocks = len(prefill.kv_cache_manager.get_block_ids("id-2")[0])
    assert reads, (
        f"After {STEPS} steps the turn is {turn.status.name}, holds {held_blocks} blocks, and no "
        "read is in progress"
    )
