"""vLLM 0.32.0, a Mamba hybrid in align mode with speculative decoding and streaming input.

The last step of an answer verifies drafts past a block boundary, and they are rejected. Its state
is then in the block after that of the computed tokens. The next part of the session is computed in
a chunk that runs past the end of this block. No step ends there, and the block is cached as the
state of that boundary. A request with the same tokens up to there continues from an older state.

Run: pytest --noconftest test_session_caches_older_state.py
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
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "and no step of the session ended there"

BLOCK_SIZE = 16
NUM_BLOCKS = 32
DRAFTS = [1]
FIRST, NEXT = range(100, 100 + BLOCK_SIZE - 1), range(500, 500 + 3 * BLOCK_SIZE)
ANSWER = 2  # tokens

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 65536,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of an earlier step that ends inside a chunk of a prompt is not cached."""
    released = MambaManager.cache_blocks

    def cache(self: Any, request: Request, num_tokens: int, *args: Any, **named: Any) -> None:
        blocks, older = self.req_to_blocks[request.request_id], {}
        if request.num_computed_tokens < request.num_prompt_tokens:
            for index, block in enumerate(blocks):
                end = (index + 1) * self.block_size
                if 0 < request.num_computed_tokens < end < num_tokens and not block.block_hash:
                    older[index], blocks[index] = block, self._null_block
        released(self, request, num_tokens, *args, **named)
        for index, block in older.items():
            blocks[index] = block

    monkeypatch.setattr(MambaManager, "cache_blocks", cache)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    model_config = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=256
    )
    config = VllmConfig(
        model_config=model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=128,
            max_model_len=256,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
        speculative_config=SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=len(DRAFTS),
            prompt_lookup_max=3,
            prompt_lookup_min=1,
            target_model_config=model_config,
            target_parallel_config=ParallelConfig(),
        ),
    )
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = BLOCK_SIZE
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        num_speculative_blocks=len(DRAFTS),
    )
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, tokens: list[int], resumable: bool = False) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=ANSWER, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=resumable,
    )


def step(scheduler: Scheduler, sampled: int) -> int:
    """One step. Returns the number of tokens that the session has computed then."""
    output = scheduler.schedule()
    result = ModelRunnerOutput(
        req_ids=["session"], req_id_to_index={"session": 0}, sampled_token_ids=[[sampled]]
    )
    scheduler.update_from_output(output, result)
    return int(scheduler.requests["session"].num_computed_tokens)


def test_a_state_is_cached_where_a_step_ended(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request("session", [*FIRST], resumable=True))
    ends = [step(scheduler, 7)]
    scheduler.update_draft_token_ids(DraftTokenIds(["session"], [DRAFTS]))
    ends.append(step(scheduler, 8))  # the draft is rejected, and the answer ends
    scheduler.add_request(make_request("session", [*NEXT], resumable=True))
    ends.append(step(scheduler, 9))
    assert ends == [15, 16, 48]

    text = list(scheduler.requests["session"].all_token_ids)
    other = make_request("other", [*text[:40], 1])
    hit = scheduler.kv_cache_manager.get_computed_blocks(other)[1]
    assert hit in ends, (
        f"a prompt with the same 40 tokens continues from the state of {hit} tokens, {FAILS_WITH}: "
        f"they ended at {ends}"
    )
