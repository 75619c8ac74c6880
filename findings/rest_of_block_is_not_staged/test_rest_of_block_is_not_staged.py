"""vLLM 0.32.0, NixlConnector with `kv_buffer_device="cpu"` on a device, and a prompt that is
computed in chunks: P copies a block to its buffer on the host when the block is new. Where a chunk
ends inside a block, the next chunk fills the block, and nobody copies it again. For the other
tokens D reads what P's block had before.

`NixlBaseConnectorScheduler._build_save_meta` takes the blocks to copy from the new blocks of a step
alone.

Here the scheduler and its side of NixlConnector are the real ones. On a CPU alone vLLM uses no
buffers, so `use_host_buffer` is set by hand. No worker is needed: which blocks a step fills follows
from the tokens that it computes.

Run: pytest --noconftest test_rest_of_block_is_not_staged.py
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import (
    NixlBaseConnectorScheduler,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "filled after they were copied to the host"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_TOKENS = 60
CHUNKS = {"whole blocks": 32, "part of a block": 24}
"""Tokens of a step (`max_num_batched_tokens`)."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a prompt are copied at its last chunk."""

    def build(self: Any, meta: Any, scheduler_output: Any) -> None:
        for req_id, tokens in scheduler_output.num_scheduled_tokens.items():
            req = self._reqs_need_save.get(req_id)
            if req is None or req.num_computed_tokens + tokens < req.num_prompt_tokens:
                continue
            blocks = scheduler_output.kv_connector_block_state.get_block_ids(req_id)
            meta.add_new_req_to_save(
                request_id=req_id,
                local_block_ids=self.get_exchange_clipped_blocks(blocks, clip_ssm=False),
                kv_transfer_params=req.kv_transfer_params,
            )
            self._reqs_need_save.pop(req_id)

    monkeypatch.setattr(NixlBaseConnectorScheduler, "_build_save_meta", build)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path, chunk: int) -> Scheduler:
    """P's scheduler."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=256
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=chunk,
            max_model_len=256,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role="kv_both", kv_buffer_device="cpu"
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    scheduler = Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )
    # As on CUDA, or any device that is not the CPU, with this `kv_buffer_device`.
    scheduler.connector.connector_scheduler.use_host_buffer = True
    return scheduler


def make_request() -> Request:
    """A request that P computes for D."""
    init_none_hash(sha256)
    params = {"do_remote_decode": True, "do_remote_prefill": False}
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_TOKENS)),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def sampled(answer: list[list[int]]) -> ModelRunnerOutput:
    """What a step of P gives back."""
    return ModelRunnerOutput(req_ids=["r0"], req_id_to_index={"r0": 0}, sampled_token_ids=answer)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_block_is_copied_when_it_is_filled(tmp_path: Path, chunk: str) -> None:
    scheduler, request = make_scheduler(tmp_path, CHUNKS[chunk]), make_request()
    scheduler.add_request(request)
    filled: dict[int, int] = {}  # the last step that writes to a block of the prompt
    copied: dict[int, int] = {}  # the last step after which it is copied to the host
    computed = 0
    for step in range(4):
        output = scheduler.schedule()
        tokens = output.num_scheduled_tokens.get("r0", 0)
        if not tokens:
            break
        (table,) = scheduler.kv_cache_manager.get_block_ids("r0")
        first, last = computed // BLOCK_SIZE, (computed + tokens - 1) // BLOCK_SIZE
        filled |= dict.fromkeys(table[first : last + 1], step)
        computed += tokens
        for meta in output.kv_connector_metadata.reqs_to_save.values():
            copied |= {block: step for group in meta.local_block_ids for block in group}
        answer = [[7]] if computed == NUM_TOKENS else [[]]
        scheduler.update_from_output(output, sampled(answer))
    assert computed == NUM_TOKENS
    late = sorted(block for block, step in filled.items() if copied.get(block, -1) < step)
    assert not late, f"{chunk}: blocks {late} were {FAILS_WITH}"
