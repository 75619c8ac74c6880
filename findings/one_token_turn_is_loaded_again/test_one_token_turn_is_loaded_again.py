"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer and kv_recompute_threshold 0.

D keeps the blocks of a turn, and P loads the next turn, whose prompt is one token. The last token
of a loaded prompt is computed again, so the turn counts no token as computed, which makes it a new
request: P counts D's token as external again and waits for it. The connector starts one transfer
per request, so no read begins. The turn waits for ever with its block.
"""

from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.turns import first_turn, step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "and no read is in progress"

PROMPT, ANSWER = 1, 3  # tokens
STEPS = 10


def make_scheduler() -> Scheduler:
    config = create_vllm_config(
        kv_role="kv_both",
        kv_connector_extra_config={"bidirectional_kv_xfer": True, "kv_recompute_threshold": 0},
    )
    return create_scheduler(config, num_blocks=1000)


def test_p_serves_a_turn_of_one_token() -> None:
    prefill, decode = make_scheduler(), make_scheduler()
    turn = create_request(2, PROMPT, PROMPT, max_tokens=1)
    held = first_turn(prefill, decode, PROMPT, ANSWER)
    assert held["do_remote_decode"]
    assert held["remote_num_tokens"] == PROMPT + ANSWER - 1
    turn.kv_transfer_params = held
    prefill.reset_prefix_cache()
    prefill.add_request(turn)
    output, _ = step(prefill)
    assert "id-2" in output.kv_connector_metadata.reqs_to_recv
    step(prefill, finished_recving={"id-2"})
    reads = []
    for _ in range(STEPS):
        if turn.is_finished():
            return
        output, _ = step(prefill)
        reads += list(output.kv_connector_metadata.reqs_to_recv)
    held_blocks = len(prefill.kv_cache_manager.get_block_ids("id-2")[0])
    assert reads, (
        f"After {STEPS} steps the turn is {turn.status.name}, holds {held_blocks} block, and no "
        "read is in progress"
    )
