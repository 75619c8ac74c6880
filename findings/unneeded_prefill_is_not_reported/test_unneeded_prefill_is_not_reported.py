"""vLLM 0.32.0, NixlPushConnector.

A request arrives on D and ends there before it is admitted: its user left, or the serving layer
rejected it. P keeps its blocks for it, and D's scheduler gives its worker an empty receive, so that
the worker notifies P. The pull worker notifies P; the push worker sends nothing, and P keeps the
blocks until its lease expires. The push worker also keeps the entry of the receive for ever. A
request that hits all it needs on D ends the same way.

Run: pytest --noconftest test_unneeded_prefill_is_not_reported.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
import queue
import threading
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "P gets no notification"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 9  # 0 is the null block
MODEL_LEN = 9 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receive without blocks is not kept, and P is notified with its own id of the request. (A
    router that sends to both at once does not know that id; P would have to strip the suffix of the
    id that it receives, as it does for registrations.)"""
    released = NixlPushConnectorWorker.start_load_kv

    def start_load_kv(self: Any, metadata: Any) -> None:
        unneeded = [n for n, m in metadata.reqs_to_recv.items() if not any(m.local_block_ids)]
        for name in unneeded:
            remote = metadata.reqs_to_recv.pop(name).remote
            for agent in self._remote_agents[remote.engine_id].values():
                words = f"{remote.request_id}:{self.world_size}".encode()
                self.nixl_wrapper.send_notif(agent, notif_msg=words)
        released(self, metadata)

    monkeypatch.setattr(NixlPushConnectorWorker, "start_load_kv", start_load_kv)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """D's scheduler."""
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
            max_num_batched_tokens=4096,
            max_model_len=MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlPushConnector",
            kv_role="kv_consumer",
            engine_id="D",
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    full = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], full)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


class Once:
    """Lets the writer's loop run one round."""

    def __init__(self) -> None:
        self.begun = False

    def is_set(self) -> bool:
        self.begun = not self.begun
        return not self.begun

    def wait(self, timeout: float) -> None: ...


class Agent:
    """NIXL's agent: it records what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {}

    def send_notif(self, _agent: str, notif_msg: bytes) -> None:
        self.sent.append(notif_msg)


def make_worker() -> Any:
    """D's worker, reduced to metadata and notifications. It knows P."""
    worker: Any = object.__new__(NixlPushConnectorWorker)
    worker.nixl_wrapper, worker.world_size = Agent(), 1
    worker.pcp_rank, worker.pcp_dcp_sharded = 0, False
    worker._physical_blocks_per_logical_kv_block = 1
    worker._remote_agents, worker._engine_last_active = {"P": {(0, 0): "P"}}, {}
    worker._handshake_lock, worker._evict_stale_engines = threading.RLock(), lambda: None
    worker._recving_metadata, worker._reqs_to_process, worker._reqs_to_send = {}, set(), {}
    worker._push_finished_blocks, worker._pending_d_registrations = {}, {}
    for name in ("_reg_send", "_finished_blocks", "_evict_finished", "_deferred_push"):
        setattr(worker, f"{name}_inbox", queue.Queue())
    worker._push_writer_stop, worker._push_writer_wake = Once(), threading.Event()
    worker._push_writer_wake.set()
    worker._send_heartbeats = lambda _metadata: None
    return worker


def make_request() -> Request:
    """A request that P has finished and keeps three blocks for."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": ([1, 2, 3],),
        "remote_engine_id": "P",
        "remote_request_id": "r0-on-p",
        "remote_host": "localhost",
        "remote_port": 1234,
        "tp_size": 1,
    }
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(3 * BLOCK_SIZE)),
        sampling_params=SamplingParams(
            max_tokens=2, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def test_p_is_told_of_a_request_that_d_does_not_serve(tmp_path: Path) -> None:
    scheduler, worker = make_scheduler(tmp_path), make_worker()
    scheduler.add_request(make_request())
    scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    assert not scheduler.requests
    metadata: Any = scheduler.schedule().kv_connector_metadata
    assert set(metadata.reqs_to_recv) == {"r0"}
    worker.start_load_kv(metadata)
    worker._push_writer_loop()
    sent, kept = worker.nixl_wrapper.sent, list(worker._recving_metadata)
    assert sent == [b"r0-on-p:1"], (
        f"P gets no notification of r0 ({sent}) and keeps 3 blocks until its lease expires; "
        f"D's worker keeps {kept} for ever"
    )
    assert not kept
