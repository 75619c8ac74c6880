"""vLLM 0.32.0, OffloadingConnector with the tier `p2p`: the connector's cache cannot be reset while
stores wait for another engine, and after the attempt the engine may die.

P's stores wait until D fetches them, for 60 seconds. `P2PSecondaryTierManager.drain_jobs` waits for
transfers alone, and leaves these stores as they are. So `TieringOffloadingManager.reset_cache`
finds jobs, and raises an AssertionError. By then `OffloadingConnectorScheduler.reset_cache` has
forgotten the requests that have ended, but not their jobs: when the worker reports one of them, the
step raises a KeyError.

Here the scheduler, the connector and its tiers are the real ones, without NIXL: nothing is
transferred. The worker's reports are written by hand.

Run: pytest --noconftest test_parked_stores_block_a_reset.py
On 0.32.0 and 0.33.0 [released] fails and [patched] passes.
"""

import contextlib
import json
import mmap
import socket
import time
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
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
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
from vllm.v1.kv_offload.tiering.base import JobResult
from vllm.v1.kv_offload.tiering.p2p.data import nixl
from vllm.v1.kv_offload.tiering.p2p.manager import P2PSecondaryTierManager
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "while a store waits for another engine"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
CPU_BYTES = 64 * mmap.PAGESIZE  # 64 chunks


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for another engine fails when the jobs are drained."""
    released = P2PSecondaryTierManager.drain_jobs

    def drain(self: Any) -> None:
        released(self)
        failed = [one.job_id for parked in self._unbound_stores.values() for one in parked]
        self._reaped_stores |= dict.fromkeys(self._unbound_stores, time.monotonic())
        self._unbound_stores.clear()
        for session in self._sessions.values():
            server = session._server
            for state in server._requests.values():
                for fetched in state.outbound.values():
                    fetched.available.clear()
                    failed += [result.job_id for result in server._fail_round_jobs(fetched)]
        self._finished_jobs += [JobResult(job_id=job, success=False) for job in failed]

    monkeypatch.setattr(P2PSecondaryTierManager, "drain_jobs", drain)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """The scheduler of P, with a CPU tier and behind it the tier of other engines."""
    monkeypatch.setattr(nixl, "_NixlAgent", None)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
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
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            engine_id="P",
            kv_connector_extra_config={
                "cpu_bytes_to_use": CPU_BYTES,
                "spec_name": "TieringOffloadingSpec",
                "secondary_tiers": [{"type": "p2p", "host": "localhost", "port": port}],
            },
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    attention = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    page = attention.page_size_bytes
    tensor = KVCacheTensor(
        size=page * NUM_BLOCKS, layers=["layer0"], layer_stride=0, block_stride=page
    )
    made = Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[KVCacheGroupSpec(["layer0"], attention)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )
    yield made
    made.shutdown()


def make_request(name: str, first: int, params: dict[str, Any] | None = None) -> Request:
    """A request of one token for a prompt of two blocks: the token ids from `first` on."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + 2 * BLOCK_SIZE)),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler, completed: list[int] | None = None) -> list[int]:
    """A step, in which the worker reports that these jobs are completed. Returns the stores that
    it begins."""
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
    return list(step.kv_connector_metadata.store_jobs)


def begin_stores(scheduler: Scheduler, request: Request) -> list[int]:
    """Serve a request to its end. Returns its stores, which are under way."""
    scheduler.add_request(request)
    return take_step(scheduler) + take_step(scheduler)


def park_store(scheduler: Scheduler) -> None:
    """A request of a router, for which D will fetch the prompt, has ended."""
    params = {"remote_decoder": {"kv_request_id": "r0"}}
    stores = begin_stores(scheduler, make_request("r0", 0, params))
    assert stores, "the prompt is stored"
    take_step(scheduler, completed=stores)
    take_step(scheduler)
    assert not scheduler.requests


def test_the_cache_is_reset(scheduler: Scheduler) -> None:
    park_store(scheduler)
    try:
        assert scheduler.reset_prefix_cache(reset_connector=True)
    except AssertionError as error:
        pytest.fail(f"the reset raises {error!r} while a store waits for another engine")


def test_the_engine_survives_the_reset(scheduler: Scheduler) -> None:
    park_store(scheduler)
    stores = begin_stores(scheduler, make_request("r1", 1000))
    with contextlib.suppress(AssertionError):  # the engine core answers with it, and goes on
        scheduler.reset_prefix_cache(reset_connector=True)
    try:
        take_step(scheduler, completed=stores)
    except KeyError as error:
        pytest.fail(f"{error!r} after a reset while a store waits for another engine")
