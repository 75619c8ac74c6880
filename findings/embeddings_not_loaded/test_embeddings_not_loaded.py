"""vLLM 0.32.0, NixlConnector, a prompt of embeddings (`--enable-prompt-embeds`).

P computes the prompt and offers it. D computes the number of offered tokens from the length of
`prompt_token_ids`, which such a request does not have. D loads nothing and computes the whole
prompt again. The output is correct; P's work and the blocks of the transfer are wasted.
"""

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from findings.helpers.utils import create_model_runner_output, create_scheduler, create_vllm_config

FAILS_WITH = "computes them again"

BLOCK_SIZE = 16
NUM_TOKENS = 100
HIDDEN_SIZE = 8


def make_scheduler(role: str) -> Scheduler:
    config = create_vllm_config(max_num_batched_tokens=4096, kv_role=role)
    config.model_config.enable_prompt_embeds = True
    return create_scheduler(config, num_blocks=100)


def make_request(kv_transfer_params: dict[str, Any]) -> Request:
    """Make a request whose prompt is embeddings."""
    embeds = torch.arange(NUM_TOKENS * HIDDEN_SIZE, dtype=torch.float32).reshape(NUM_TOKENS, -1)
    request = Request(
        request_id="r0",
        prompt_token_ids=None,
        prompt_embeds=embeds,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )
    request.kv_transfer_params = kv_transfer_params
    return request


def test_d_loads_what_p_offers() -> None:
    init_none_hash(sha256)
    prefill, of_p = make_scheduler("kv_producer"), make_request({"do_remote_decode": True})
    prefill.add_request(of_p)
    ran = create_model_runner_output([of_p])
    outputs = prefill.update_from_output(prefill.schedule(), ran)
    params = outputs[0].outputs[0].kv_transfer_params
    offered = params["remote_num_tokens"]
    assert offered == NUM_TOKENS

    decode = make_scheduler("kv_consumer")
    decode.add_request(make_request(params))
    output = decode.schedule()
    to_load = output.kv_connector_metadata.reqs_to_recv["r0"].local_block_ids
    computed = output.num_scheduled_tokens.get("r0", 0)
    assert any(to_load), (
        f"P offers {offered} tokens of a prompt of embeddings; D loads none of them and computes "
        f"them again ({computed} tokens in the first step)"
    )
    assert computed == 0
