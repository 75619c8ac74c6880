"""vLLM 0.32.0, OffloadingConnector: a reset of the prefix cache that preempts running requests ends
the engine. Mended in 0.33.0.

`reset_prefix_cache(reset_running_requests=True)` preempts between two steps. The next step names
the request in `preempted_req_ids`, and admits it again with a load of what was stored: in
`Scheduler.schedule` no request is admitted only if this step itself preempts.
`OffloadingConnectorScheduler.build_connector_meta` asserts that each job of a preempted request is
a store, and meets the new load.

Here the scheduler and the connector are the real ones; the worker's report is written by hand.

Run: pytest --noconftest test_forced_reset_ends_offloading.py
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
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the engine dies in the first step after the reset"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 2 * BLOCK_SIZE + 4


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that this step loads has nothing to flush."""
    released = OffloadingConnectorScheduler.build_connector_meta

    def build(self: Any, scheduler_output: Any) -> Any:
        loads = {job.req_id for job in self._current_batch_load_jobs.values()}
        preempted = scheduler_output.preempted_req_ids
        scheduler_output.preempted_req_ids = set(preempted or ()) - loads
        try:
            return released(self, scheduler_output)
        finally:
            scheduler_output.preempted_req_ids = preempted

    monkeypatch.setattr(OffloadingConnectorScheduler, "build_connector_meta", build)


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
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    page = spec.page_size_bytes
    tensor = KVCacheTensor(
        size=page * NUM_BLOCKS,
        layers=["layer0"],
        layer_stride=page * NUM_BLOCKS,
        block_stride=page,
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[KVCacheGroupSpec(["layer0"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request() -> Request:
    """A request with a prompt of two whole blocks and a part of a third."""
    init_none_hash(sha256)
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_PROMPT)),
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


def test_a_request_that_runs_survives_a_reset(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request())
    stores = take_step(scheduler).store_jobs
    assert stores, "the blocks of the prompt are stored"
    take_step(scheduler, completed=list(stores))
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    try:
        loads = take_step(scheduler).load_jobs
    except AssertionError as error:
        pytest.fail(f"the engine dies in the first step after the reset: {error!r}")
    assert [job.req_id for job in loads.values()] == ["r0"]
