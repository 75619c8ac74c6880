"""vLLM 0.32.0, cache groups of unequal block sizes with Mamba layers in align mode (vllm#54076).

A Mamba state is cached where a chunk ends, and chunks must end at multiples of its block size. vLLM
splits them by `cache_config.block_size`, which an engine sets to the smallest block size of all
groups (`EngineCore._initialize_kv_caches`). A chunk ends inside a block of states, the next chunk
passes the boundary, and the state at the end of the first chunk is cached under the hash of the
whole block. A request that hits it continues from a state without the last tokens. No error is
raised.

Run: pytest --noconftest test_split_at_the_smallest_block.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "which no chunk ended at"

BLOCK_SIZE = 16
STATE_BLOCK_SIZE = 48
BUDGET = 40
PROMPT = 100
NUM_BLOCKS = 50

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are split by the block size of the states."""
    released = Scheduler._mamba_block_aligned_split

    def split(self: Any, *args: Any, **kwargs: Any) -> int:
        smallest = self.cache_config.block_size
        self.cache_config.block_size = self.cache_config.mamba_block_size
        try:
            return int(released(self, *args, **kwargs))
        finally:
            self.cache_config.block_size = smallest

    monkeypatch.setattr(Scheduler, "_mamba_block_aligned_split", split)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    mamba = MambaSpec(
        block_size=STATE_BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=256
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=BUDGET,
            max_model_len=256,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = STATE_BLOCK_SIZE
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=STATE_BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )


def make_request(name: str, first: int, num_tokens: int) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + num_tokens)),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def finish(scheduler: Scheduler, output: SchedulerOutput) -> None:
    """The output of a step; each request with a computed prompt samples a token."""
    names = list(output.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    sampled = [[7] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
        ),
    )


def test_a_cached_state_is_that_of_its_boundary(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    request = make_request("r", 0, PROMPT)
    scheduler.add_request(request)
    states = scheduler.kv_cache_manager.coordinator.single_type_managers[1]
    ends = []
    while request.num_output_tokens == 0:
        output = scheduler.schedule()
        ends.append(request.num_computed_tokens)
        blocks = [b for b in states.req_to_blocks["r"] if not b.is_null and b.block_hash]
        for block in blocks:
            cached = block.block_hash_num_tokens
            assert cached in ends, (
                f"block {block.block_id} is cached as the state of {cached} tokens, which no chunk "
                f"ended at: they ended at {ends}"
            )
        finish(scheduler, output)
