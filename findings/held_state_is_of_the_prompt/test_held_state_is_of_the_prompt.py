"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer, a Mamba hybrid.

D has answered a prompt and keeps its blocks for the next turn: the KV of all tokens, and one state,
after the last token. The client submits the same prompt again, or the prompt with the answer and no
new token. P counts the tokens of its prompt as loaded and uses D's state for them, which is the
state after the answer. With the answer it is the right state, but P computes its last token again,
to sample from it, so this token is applied to the state twice.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.turns import first_turn, step
from findings.helpers.utils import (
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "the state D holds is that of"

BLOCK_SIZE = 16
PROMPT, ANSWER = 100, 40  # tokens


def make_scheduler() -> Scheduler:
    config = create_vllm_config(
        max_num_batched_tokens=4096,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"bidirectional_kv_xfer": True},
    )
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    return create_scheduler(config, kv_cache_config=cache)


@pytest.mark.parametrize("sent_of_answer", [0, ANSWER], ids=["prompt", "prompt_and_answer"])
def test_p_goes_on_from_the_tokens_of_the_state(sent_of_answer: int) -> None:
    prefill, decode = make_scheduler(), make_scheduler()
    held = first_turn(prefill, decode, PROMPT, ANSWER)
    assert held["do_remote_decode"]
    assert held["remote_num_tokens"] == PROMPT + ANSWER - 1
    prefill.reset_prefix_cache()
    tokens = PROMPT + sent_of_answer
    turn = create_request(2, tokens, tokens, max_tokens=1)
    turn.kv_transfer_params = held
    prefill.add_request(turn)
    output, _ = step(prefill)
    if output.num_scheduled_tokens:
        return  # P computes the prompt
    step(prefill, finished_recving={"id-2"})
    output, _ = step(prefill)
    (to_run,) = output.scheduled_new_reqs
    assert to_run.num_computed_tokens == held["remote_num_tokens"], (
        f"P continues after {to_run.num_computed_tokens} tokens, and the state D holds is "
        f"that of {held['remote_num_tokens']}"
    )
