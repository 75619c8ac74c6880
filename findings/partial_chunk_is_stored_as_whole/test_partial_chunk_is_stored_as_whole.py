"""vLLM 0.32.0, OffloadingConnector with chunks of several blocks, beside sliding windows: a chunk
is stored in part, under the key of the whole, and another request loads all of it.

A request that begins with a hit in the engine's own cache has the null block where its window needs
nothing. Of the blocks of a chunk, `_build_store_jobs` looks at the last one alone: where it is
there, the chunk is stored, without the null blocks before it. A request whose window begins earlier
in this chunk is offered it, and loads a block that nobody has stored.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.

Run: pytest --noconftest test_partial_chunk_is_stored_as_whole.py
On 0.32.0 [released] fails and [patched] passes. 0.33.0 has it mended.
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
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "are loaded, and nobody has stored them"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
CHUNK = 2  # blocks
NUM_BLOCKS = 1 + 30  # 0 is the null block


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk without all of its blocks is not stored."""
    released = OffloadingConnectorScheduler._build_store_jobs

    def build(self: Any, *args: Any, **more: Any) -> Any:
        for status in self._req_status.values():
            for index in self._sliding_window_groups:
                blocks = status.group_states[index].block_ids
                for first in range(0, len(blocks) - CHUNK + 1, CHUNK):
                    if 0 in blocks[first : first + CHUNK]:
                        blocks[first : first + CHUNK] = [0] * CHUNK
        return released(self, *args, **more)

    monkeypatch.setattr(OffloadingConnectorScheduler, "_build_store_jobs", build)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with a CPU tier of 64 chunks or fewer."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=256
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
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"cpu_bytes_to_use": 2**18, "blocks_per_chunk": CHUNK},
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    specs = [FullAttentionSpec(**shape), SlidingWindowSpec(sliding_window=WINDOW, **shape)]
    groups = [KVCacheGroupSpec([f"layer{n}"], spec) for n, spec in enumerate(specs)]
    page = specs[0].page_size_bytes
    tensors = [
        KVCacheTensor(
            size=page * NUM_BLOCKS,
            layers=group.layer_names,
            layer_stride=page * NUM_BLOCKS,
            block_stride=page,
        )
        for group in groups
    ]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS,
            kv_cache_tensors=tensors,
            kv_cache_groups=groups,
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, tokens: int) -> Request:
    """A request with the first so many of the same token ids as its prompt."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(tokens)),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler, completed: list[int]) -> Any:
    """A step, in which the worker reports that these jobs are completed."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    worker = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(completed, 1))
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=worker),
    )
    scheduler.update_from_output(step, ended)
    return step.kv_connector_metadata


def parts(blocks: Any, chunks: Any) -> set[tuple[int, int]]:
    """The parts of chunks that a job copies: the chunk, and the place of the block in it."""
    found: set[tuple[int, int]] = set()
    left = [int(chunk) for chunk in chunks.block_ids]
    for count, first in zip(blocks.group_sizes, blocks.block_indices, strict=True):
        places = [(first % CHUNK + number) for number in range(count)]
        own = left[: places[-1] // CHUNK + 1] if places else []
        left = left[len(own) :]
        found |= {(own[place // CHUNK], place % CHUNK) for place in places}
    return found


def serve(scheduler: Scheduler, name: str, tokens: int) -> set[tuple[int, int]]:
    """Serve a request, and return what is stored meanwhile."""
    scheduler.add_request(make_request(name, tokens))
    stored: set[tuple[int, int]] = set()
    jobs: list[int] = []
    for _ in range(4):
        made = take_step(scheduler, jobs).store_jobs
        jobs = list(made)
        for job in made.values():
            stored |= parts(job.src_spec, job.dst_spec)
    return stored


def test_what_is_loaded_was_stored(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    stored = serve(scheduler, "r0", 12 * BLOCK_SIZE + 8)
    stored |= serve(scheduler, "r1", 8 * BLOCK_SIZE)  # it has a hit
    scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("r2", 8 * BLOCK_SIZE))
    scheduler.add_request(make_request("r3", 12 * BLOCK_SIZE + 8))
    loads = take_step(scheduler, []).load_jobs.values()
    assert loads, "what r0 had is loaded"
    strange = sorted(set().union(*(parts(job.dst_spec, job.src_spec) for job in loads)) - stored)
    assert not strange, f"(chunk, block of it) {strange} are loaded, and nobody has stored them"
