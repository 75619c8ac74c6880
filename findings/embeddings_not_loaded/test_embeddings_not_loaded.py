"""vLLM 0.32.0, NixlConnector, a prompt of embeddings (`--enable-prompt-embeds`).

P computes the prompt and offers it. D computes the number of offered tokens from the length of
`prompt_token_ids`, which such a request does not have. D loads nothing and computes the whole
prompt again. The output is correct; P's work and the blocks of the transfer are wasted.

Run: pytest --noconftest test_embeddings_not_loaded.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
    NixlPullConnectorScheduler,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "computes them again"

BLOCK_SIZE = 16
NUM_BLOCKS = 100
NUM_TOKENS = 100
HIDDEN_SIZE = 8


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without token ids, the prompt is as long as its embeddings."""
    released = NixlPullConnectorScheduler.get_num_new_matched_tokens

    def matched(self: Any, request: Request, num_computed_tokens: int) -> Any:
        params = request.kv_transfer_params or {}
        if request.prompt_token_ids is None and params.get("do_remote_prefill"):
            offered = self._get_remote_prefill_token_count(request.num_prompt_tokens)
            if offered > num_computed_tokens:
                return offered - num_computed_tokens, True
        return released(self, request, num_computed_tokens)

    monkeypatch.setattr(NixlPullConnectorScheduler, "get_num_new_matched_tokens", matched)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path, engine_id: str, role: str) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": HIDDEN_SIZE, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=1024,
            enable_prompt_embeds=True,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=4096,
            max_model_len=1024,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role=role, engine_id=engine_id
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(embeds: torch.Tensor, kv_transfer_params: dict[str, Any]) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id="r0",
        prompt_token_ids=None,
        prompt_embeds=embeds,
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": kv_transfer_params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def prefill(folder: Path, embeds: torch.Tensor) -> dict[str, Any]:
    """P computes the prompt and one token. Returns the transfer parameters."""
    scheduler = make_scheduler(folder, "P", "kv_producer")
    scheduler.add_request(make_request(embeds, {"do_remote_decode": True}))
    output = scheduler.schedule()
    sampled = ModelRunnerOutput(req_ids=["r0"], req_id_to_index={"r0": 0}, sampled_token_ids=[[7]])
    outputs = scheduler.update_from_output(output, sampled)
    params: dict[str, Any] = outputs[0].outputs[0].kv_transfer_params
    return params


def test_d_loads_what_p_offers(tmp_path: Path) -> None:
    embeds = torch.arange(NUM_TOKENS * HIDDEN_SIZE, dtype=torch.float32).reshape(NUM_TOKENS, -1)
    params = prefill(tmp_path, embeds)
    offered = params["remote_num_tokens"]
    assert offered == NUM_TOKENS

    decode = make_scheduler(tmp_path, "D", "kv_consumer")
    decode.add_request(make_request(embeds, params))
    output = decode.schedule()
    to_load = output.kv_connector_metadata.reqs_to_recv["r0"].local_block_ids
    computed = output.num_scheduled_tokens.get("r0", 0)
    assert any(to_load), (
        f"P offers {offered} tokens of a prompt of embeddings; D loads none of them and computes "
        f"them again ({computed} tokens in the first step)"
    )
    assert computed == 0
