"""vLLM 0.32.0, SimpleCPUOffloadConnector and chunked local attention: blocks that the layers read
are not loaded.

`get_num_new_matched_tokens` looks up the tokens behind the local hit as if the first of them were
the first of the prompt. Which blocks chunked local attention reads is counted from there: where the
local hit is no multiple of the chunk, the beginning of the last chunk is taken for a part of the
chunk before, which nobody reads, and is not loaded. The block has what another request left there.

Here the scheduler and the connector's scheduler side are the real ones; the worker copies nothing,
and reports each copy as done.

Run: pytest --noconftest test_chunk_counted_from_local_hit.py
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
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "which its layers read, is not loaded"

BLOCK_SIZE = 4
CHUNK = 8  # attention_chunk_size
NUM_BLOCKS = 1 + 40  # 0 is the null block


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up behind a local hit that ends inside a chunk."""
    matched: Any = SimpleCPUOffloadScheduler.get_num_new_matched_tokens

    def aligned(self: Any, request: Request, num_computed_tokens: int) -> Any:
        specs = (group.kv_cache_spec for group in self.cpu_kv_cache_config.kv_cache_groups)
        chunks = (getattr(spec, "attention_chunk_size", None) or 1 for spec in specs)
        if any(num_computed_tokens % chunk for chunk in chunks):
            return 0, False
        result: tuple[int | None, bool] = matched(self, request, num_computed_tokens)
        return result

    monkeypatch.setattr(SimpleCPUOffloadScheduler, "get_num_new_matched_tokens", aligned)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    """The scheduler of an engine with full attention and chunked local attention."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(tmp_path), skip_tokenizer_init=True, dtype="float32", max_model_len=256
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_model_len=256,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="SimpleCPUOffloadConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"cpu_bytes_to_use": 2**20},
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    local = ChunkedLocalAttentionSpec(**shape, dtype=torch.float32, attention_chunk_size=CHUNK)
    page = full.page_size_bytes
    tensor = KVCacheTensor(
        size=page * NUM_BLOCKS, layers=["full", "local"], layer_stride=0, block_stride=page
    )
    groups = [KVCacheGroupSpec(["full"], full), KVCacheGroupSpec(["local"], local)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS, kv_cache_tensors=[tensor], kv_cache_groups=groups
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, num_prompt: int, *, reads_cache: bool = True) -> Request:
    """A request whose prompt begins as that of the others."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(num_prompt)),
        sampling_params=SamplingParams(
            max_tokens=4, ignore_eos=True, prompt_logprobs=None if reads_cache else 1
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler) -> Any:
    """A step, in which the worker makes all copies. Returns the metadata of the connector."""
    step = scheduler.schedule()
    metadata = step.kv_connector_metadata
    names = list(step.num_scheduled_tokens)
    stored = {metadata.store_event: 1} if metadata.store_event >= 0 else {}
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(
            kv_connector_worker_meta=SimpleCPUOffloadWorkerMetadata(stored)
        ),
    )
    scheduler.update_from_output(step, ended)
    return metadata


def test_what_the_layers_read_is_loaded(scheduler: Scheduler) -> None:
    scheduler.add_request(make_request("stored", 6 * BLOCK_SIZE))
    for _ in range(6):  # it ends, and its blocks are on the CPU
        take_step(scheduler)
    assert scheduler.reset_prefix_cache()

    # Its first block is in the GPU's prefix cache again: half a chunk.
    scheduler.add_request(make_request("first", BLOCK_SIZE + 1, reads_cache=False))
    take_step(scheduler)
    scheduler.finish_requests("first", RequestStatus.FINISHED_ABORTED)

    scheduler.add_request(make_request("again", 5 * BLOCK_SIZE + 1))
    loaded = take_step(scheduler).load_gpu_blocks
    # Token 20 reads tokens 16 to 19 of its chunk, which begins at token 16.
    table = scheduler.kv_cache_manager.get_block_ids("again")[1]
    computed = scheduler.requests["again"].status == RequestStatus.RUNNING
    assert computed or table[4] in loaded, (
        f"block {table[4]} of tokens 16 to 19, which its layers read, is not loaded: {loaded}"
    )
