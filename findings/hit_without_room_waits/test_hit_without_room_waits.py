"""vLLM 0.32.0, full attention and Mamba layers in align mode, prefix hits finer than a block
(`--prefix-match-unit`, or cache groups of unequal block sizes). No public report was found.

The pool has as many blocks as the longest request needs; the check at start requires no more. A
prompt of that length is served. When it is submitted again, it hits inside a block and needs a
copy, and the cached block is held until the copy is made. The request now needs more blocks than
the pool has, and vLLM does not try a shorter hit. The request is never scheduled, although no other
request runs, and neither are the requests behind it.

Run: pytest --noconftest test_hit_without_room_waits.py
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
from vllm.utils.math_utils import cdiv
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
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

FAILS_WITH = "is never scheduled"

BLOCK_SIZE = 32
HASH_SIZE = 16
MAX_MODEL_LEN = 3 * BLOCK_SIZE
LONG = MAX_MODEL_LEN - 1
NUM_BLOCKS = 1 + 3 + 2  # the null block; three blocks of attention, and two for states
STEPS = 20

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
    """A hit whose copies do not fit into the empty pool is not used."""
    released = KVCacheManager.get_computed_blocks

    def look_up(self: Any, request: Any, *limit: Any) -> Any:
        blocks, hit, junction = released(self, request, *limit)
        inside = int(hit % BLOCK_SIZE > 0)
        needed = cdiv(request.num_tokens, BLOCK_SIZE) + inside + 1 + inside
        if needed > NUM_BLOCKS - 1:
            return self.empty_kv_cache_blocks, 0, 0
        return blocks, hit, junction

    monkeypatch.setattr(KVCacheManager, "get_computed_blocks", look_up)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=64,
            max_model_len=MAX_MODEL_LEN,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = BLOCK_SIZE
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        hash_block_size=HASH_SIZE,
    )


def make_request(name: str, first: int, num_tokens: int) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + num_tokens)),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(HASH_SIZE, sha256),
    )


def step(scheduler: Scheduler) -> dict[str, int]:
    """One step; each request with a computed prompt samples a token. Returns the scheduled
    requests."""
    output = scheduler.schedule()
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
    return dict(output.num_scheduled_tokens)


def test_a_prompt_sent_again_is_served_again(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    for name in ("first", "again"):
        scheduler.add_request(make_request(name, 0, LONG))
        seen = [step(scheduler) for _ in range(STEPS)]
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        assert sum(scheduled.get(name, 0) for scheduled in seen) > 0, (
            f"the request {name!r} of {LONG} tokens is never scheduled in {STEPS} steps, "
            f"with {free} of {NUM_BLOCKS - 1} blocks free and no other request"
        )
