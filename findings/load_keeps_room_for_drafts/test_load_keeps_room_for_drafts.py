"""vLLM 0.32.0, NixlConnector, and speculative decoding on D.

Before a load begins, D asks for its blocks and, in addition, for the blocks of a whole step with
drafts in each attention group. The blocks of the load have room for such a step themselves. A
prompt that ends in the last block of the pool, and could be served there, needs one block more than
exist. Alone on an idle D it waits for ever, and so do all requests behind it.

The pool has room for `max_model_len` tokens; the check at start requires no more.
"""

from vllm.config import SpeculativeConfig
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "waits for ever"

BLOCK_SIZE = 16
POOL = 4
"""Blocks that requests can have; the null block is one more."""
MAX_MODEL_LEN = POOL * BLOCK_SIZE
LONG, SHORT = MAX_MODEL_LEN - 4, 3
"""Prompts, in tokens: with 3 drafts after it the long one ends in the last block, too."""
NUM_DRAFTS = 3
STEPS = 20


def make_scheduler() -> Scheduler:
    """Make D's scheduler."""
    config = create_vllm_config(max_model_len=MAX_MODEL_LEN)
    config.speculative_config = SpeculativeConfig(method="ngram", num_speculative_tokens=NUM_DRAFTS)
    return create_scheduler(config, POOL + 1)


def test_a_prompt_that_fits_is_loaded() -> None:
    decode = make_scheduler()
    for number, tokens in ((1, LONG), (2, SHORT)):
        request = create_request(number, tokens, max_tokens=1, do_remote_prefill=True)
        blocks = list(range(1, -(-tokens // BLOCK_SIZE) + 1))
        request.kv_transfer_params["remote_block_ids"] = (blocks,)
        request.kv_transfer_params["remote_num_tokens"] = tokens
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
        f"D is idle with {free} of {POOL} blocks free; a prompt of {LONG} tokens, which need "
        f"{-(-LONG // BLOCK_SIZE)} blocks, waits for ever: {STEPS} steps have loaded nothing "
        f"for {waits}"
    )
