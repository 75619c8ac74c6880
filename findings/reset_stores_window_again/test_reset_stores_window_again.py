"""vLLM 0.32.0, OffloadingConnector beside sliding windows: after a reset of the connector's cache,
blocks that a running request has given up are stored again, with the tokens of another request.

`OffloadingConnectorScheduler.reset_cache` sets the store progress of running requests back to their
first chunk. Of a window, blocks before that progress may have been given up and taken by others:
`_update_req_states` forgets such a block only behind the progress, where it is still to be stored.
So the next step stores what is in them now under the keys of the request.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.

Run: pytest --noconftest test_reset_stores_window_again.py
On 0.32.0 and 0.33.0 [released] fails and [patched] passes.
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

FAILS_WITH = "are stored under the keys of r0, which has not got them"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
NUM_BLOCKS = 1 + 15  # 0 is the null block


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a window that were stored are not stored again after a reset: the request may have
    given them up."""
    released = OffloadingConnectorScheduler.reset_cache

    def reset(self: Any) -> Any:
        for status in self._req_status.values():
            for index in self._sliding_window_groups:
                group = status.group_states[index]
                stored = group.next_stored_chunk_idx * self.config.blocks_per_chunk
                group.block_ids[:stored] = [0] * len(group.block_ids[:stored])
        return released(self)

    monkeypatch.setattr(OffloadingConnectorScheduler, "reset_cache", reset)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with a CPU tier of 64 blocks or fewer."""
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
            kv_connector_extra_config={"cpu_bytes_to_use": 2**18},
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


def make_request(name: str, first: int, tokens: int) -> Request:
    """A request whose prompt is the token ids from `first` on."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + tokens)),
        sampling_params=SamplingParams(max_tokens=8, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler, completed: list[int] | None = None) -> Any:
    """A step, in which the worker reports that these jobs are completed."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    worker = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(completed or (), 1))
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=worker),
    )
    scheduler.update_from_output(step, ended)
    return step.kv_connector_metadata


def test_what_is_stored_after_a_reset_is_of_its_request(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request("r0", 0, 5 * BLOCK_SIZE))
    stores = take_step(scheduler).store_jobs
    before = scheduler.kv_cache_manager.get_block_ids("r0")[1]
    scheduler.add_request(make_request("r1", 1000, 3 * BLOCK_SIZE))
    take_step(scheduler, completed=list(stores))
    taken = {block for table in scheduler.kv_cache_manager.get_block_ids("r1") for block in table}
    assert taken & {*before}, "r1 has blocks that the window of r0 gave up"

    scheduler.reset_prefix_cache(reset_connector=True)
    jobs = take_step(scheduler).store_jobs.values()
    stored = {int(block) for job in jobs if job.req_id == "r0" for block in job.src_spec.block_ids}
    assert stored, "what r0 has is stored again"
    own = {block for table in scheduler.kv_cache_manager.get_block_ids("r0") for block in table}
    strange = sorted(stored - own)
    assert not strange, f"blocks {strange} are stored under the keys of r0, which has not got them"
