"""vLLM 0.32.0, MooncakeStoreConnector: a reset of the prefix cache that preempts running requests
loses them: each hangs, or the engine dies. `pause_generation(mode="keep")` makes such a reset.

`reset_prefix_cache(reset_running_requests=True)` preempts between two steps. The next step admits
the request again, and names it in `preempted_req_ids`. For each such request
`MooncakeStoreScheduler.build_connector_meta` drops what `update_state_after_alloc` noted in the
same step: a load is never given to the worker, and a request without a load has no entry.

Here the scheduler and the connector's scheduler side are the real ones; the look-up and the
worker's report are written by hand.

Run: pytest --noconftest test_forced_reset_loses_mooncake_load.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from collections.abc import Iterator
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
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import (
    MooncakeLookupResult,
    MooncakeStoreWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.scheduler import (
    MooncakeStoreScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker import LookupKeyClient
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the request is lost after the reset"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 2 * BLOCK_SIZE + 4


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted since the last step is of requests that were admitted again: it stays. The
    metadata still name them as preempted."""
    allocated = MooncakeStoreScheduler.update_state_after_alloc
    released = MooncakeStoreScheduler.build_connector_meta
    admitted: set[str] = set()

    def note(self: Any, request: Request, *more: Any) -> None:
        admitted.add(request.request_id)
        allocated(self, request, *more)

    def build(self: Any, scheduler_output: Any) -> Any:
        preempted = scheduler_output.preempted_req_ids
        scheduler_output.preempted_req_ids = set(preempted or ()) - admitted
        admitted.clear()
        try:
            meta = released(self, scheduler_output)
        finally:
            scheduler_output.preempted_req_ids = preempted
        meta.preempted_req_ids = set(preempted or ())
        return meta

    monkeypatch.setattr(MooncakeStoreScheduler, "update_state_after_alloc", note)
    monkeypatch.setattr(MooncakeStoreScheduler, "build_connector_meta", build)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with a Mooncake store."""
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
            kv_connector="MooncakeStoreConnector",
            kv_role="kv_both",
            engine_id="E",
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


def take_step(scheduler: Scheduler) -> Any:
    """A step, after which the worker has stored what the metadata name."""
    try:
        step = scheduler.schedule()
    except (AssertionError, TypeError) as error:
        pytest.fail(f"the request is lost after the reset: the engine dies of {error!r}")
    names = list(step.num_scheduled_tokens)
    saves = [each.store_job_id for each in step.kv_connector_metadata.requests if each.can_save]
    worker = MooncakeStoreWorkerMetadata(completed_saves=dict.fromkeys(saves, 1))
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=worker),
    )
    scheduler.update_from_output(step, ended)
    return step


def store_has(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """The store has so many tokens of each prompt."""
    found = MooncakeLookupResult(hit_length=tokens)
    monkeypatch.setattr(LookupKeyClient, "_lookup", lambda *_: found)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """It runs a request, whose first two blocks were stored."""
    made = make_scheduler(tmp_path)
    store_has(monkeypatch, 0)
    made.add_request(make_request())
    assert take_step(made).kv_connector_metadata.requests[0].can_save
    take_step(made)
    yield made
    made.connector.connector_scheduler.client.close()


def test_a_request_is_loaded_after_a_reset(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_has(monkeypatch, 2 * BLOCK_SIZE)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    step = take_step(scheduler)
    assert scheduler.requests["r0"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    loads = [each.req_id for each in step.kv_connector_metadata.requests if each.load_spec]
    assert loads == ["r0"], (
        "the request is lost after the reset: it waits for the load of 32 tokens, and the worker "
        f"gets these loads: {loads}"
    )


def test_a_request_runs_on_after_a_reset_of_the_store(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LookupKeyClient, "_reset", lambda _: True)
    assert scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    assert take_step(scheduler).num_scheduled_tokens == {"r0": NUM_PROMPT + 2}
