"""vLLM 0.32.0, `--scheduling-policy priority` and prefix caching, one engine. Compare vllm#57580.

A request is scheduled, and the blocks that its tokens will fill are put into the prefix cache. Then
a request with higher priority lacks a block and preempts it, in the same step. The step runs
without the preempted request, and its blocks stay in the cache under hashes whose tokens were never
computed. Here the preempted request hits such a block itself when it is admitted again. Attention
layers only; the option `--long-prefill-token-threshold` lets a chunk and a decode share a step.
(With a Mamba group, no such option is needed.)

Run: pytest --noconftest test_uncomputed_stays_cached.py
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
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "were never computed"

BLOCK_SIZE = 16
CHUNK = 2 * BLOCK_SIZE
NUM_BLOCKS = 1 + 8  # 0 is the null block
MODEL_LEN = 8 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that a request has not computed when it is preempted leave the cache."""
    released = Scheduler._preempt_request

    def preempt(self: Any, request: Request, *rest: Any, **named: Any) -> None:
        cache = self.kv_cache_manager
        for manager in cache.coordinator.single_type_managers:
            first = request.num_computed_tokens // manager.block_size
            uncomputed = manager.req_to_blocks[request.request_id][first:]
            cache.evict_blocks({b.block_id for b in uncomputed if not b.is_null})
        released(self, request, *rest, **named)

    monkeypatch.setattr(Scheduler, "_preempt_request", preempt)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=MODEL_LEN
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=CHUNK + BLOCK_SIZE,
            long_prefill_token_threshold=CHUNK,
            max_model_len=MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
            policy="priority",
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
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


def make_request(name: str, prompt: range, priority: int, max_tokens: int) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        priority=priority,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler) -> SchedulerOutput:
    """One step: schedule, sample a token for each request with a computed prompt, update."""
    output = scheduler.schedule()
    requests = scheduler.requests
    names = list(output.num_scheduled_tokens)
    through = [requests[n].num_computed_tokens >= requests[n].num_tokens for n in names]
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] if done else [] for done in through],
    )
    scheduler.update_from_output(output, sampled)
    return output


def test_a_preempted_request_hits_only_what_was_computed(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request("low", range(100), priority=1, max_tokens=1))
    computed = step(scheduler).num_scheduled_tokens["low"]
    scheduler.add_request(make_request("high", range(200, 216), priority=0, max_tokens=2))
    output = step(scheduler)
    computed += output.num_scheduled_tokens["low"]
    assert computed == 2 * CHUNK + BLOCK_SIZE
    assert output.num_scheduled_tokens["high"] == BLOCK_SIZE

    # `low` takes the last free blocks for its third chunk, then `high` needs one to decode.
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"high": 1}
    assert output.preempted_req_ids == {"low"}

    output = step(scheduler)
    (resumed,) = output.scheduled_cached_reqs.num_computed_tokens
    assert resumed <= computed, (
        f"A preempted request hits {resumed} tokens in the prefix cache when it is admitted "
        f"again; of these {resumed - computed} were never computed"
    )
    assert output.num_scheduled_tokens["low"] > 0
