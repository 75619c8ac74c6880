"""vLLM 0.32.0, NixlPushConnector. Reported as vllm#46283, vllm#53095 and vllm#50754.

D has registered its blocks with P and waits for the write. P does not have the request any more, or
could not write, and no write arrives. The watchdog over registrations only writes a log line: the
request waits for ever and keeps its blocks. If its user leaves, the blocks are still held.

Run: pytest --noconftest test_write_awaited_for_ever.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
import queue
import threading
import time
import types
from collections import defaultdict
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler import (
    NixlPushConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "is still held after its deadline"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 9  # 0 is the null block
MODEL_LEN = 9 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve
TIMEOUT_S = 0.05
"""`push_registration_timeout`; it is 480 s by default."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog reports an expired registration to the worker as a failed load, also for a
    request that was aborted meanwhile. Its timeout must be longer than P can hold a
    registration."""
    build = NixlPushConnectorScheduler.build_connector_meta
    finished = NixlPushConnectorScheduler.request_finished
    start = NixlPushConnectorWorker.start_load_kv

    def build_connector_meta(self: Any, output: Any) -> Any:
        now = time.perf_counter()
        late = [n for n, end in self._push_registration_deadlines.items() if end <= now]
        meta: Any = build(self, output)
        meta.push_timed_out = late
        return meta

    def request_finished(self: Any, request: Any, block_ids: Any) -> Any:
        name = request.request_id
        deadline = self._push_registration_deadlines.get(name)
        result = finished(self, request, block_ids)
        if deadline is not None:
            self._push_registration_deadlines[name] = deadline
        return result

    def start_load_kv(self: Any, metadata: Any) -> None:
        start(self, metadata)
        for name in metadata.push_timed_out:
            self._failed_recv_reqs.put(name)

    monkeypatch.setattr(NixlPushConnectorScheduler, "build_connector_meta", build_connector_meta)
    monkeypatch.setattr(NixlPushConnectorScheduler, "request_finished", request_finished)
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
            kv_load_failure_policy="fail",
            kv_connector_extra_config={"push_registration_timeout": TIMEOUT_S},
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


def make_worker() -> Any:
    """D's worker, reduced to metadata and reports. Its writer does not run, because no peer would
    answer."""
    worker: Any = object.__new__(NixlPushConnectorWorker)
    worker.engine_id, worker.tp_rank, worker.world_size = "D", 0, 1
    worker.pcp_rank, worker.pcp_dcp_sharded, worker._is_hma_required = 0, False, True
    worker._physical_blocks_per_logical_kv_block, worker._remote_agents = 1, {}
    worker.nixl_wrapper = worker.transfer_topo = worker.xfer_stats = types.SimpleNamespace()
    worker._reqs_to_send, worker._recving_metadata = {}, {}
    worker._reqs_to_process, worker._recv_failures = set(), set()
    worker._replicated_pcp_done_sending, worker._send_failures = set(), set()
    worker._recving_transfers, worker._sending_transfers = defaultdict(list), defaultdict(list)
    worker._pending_recv_notifs = {}
    worker.use_host_buffer = worker.enable_heterogeneous_attn_post_process = False
    for name in ("_reg_send", "_finished_blocks", "_evict_finished"):
        setattr(worker, f"{name}_inbox", queue.Queue())
    worker._pending_completion_notifs, worker._failed_recv_reqs = queue.Queue(), queue.Queue()
    worker._push_writer_wake = threading.Event()
    worker._sending_transfers_lock = threading.Lock()
    worker._send_heartbeats = lambda _metadata: None
    return worker


def make_request() -> Request:
    """A request that a router has sent to P and D at once."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "P",
        "remote_request_id": "r0",
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


def step(scheduler: Scheduler, worker: Any) -> None:
    """Schedule, give the worker its metadata, process its reports."""
    output = scheduler.schedule()
    worker.start_load_kv(output.kv_connector_metadata)
    results = worker.get_transfer_results()
    report = KVConnectorOutput(
        finished_sending=results.finished_sending,
        finished_recving=results.finished_recving,
        failed_recving=results.failed_recving,
    )
    runner = ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=report)
    scheduler.update_from_output(output, runner)


def check_it_is_given_up(folder: Path, aborted: bool) -> None:
    """D registers r0; after its deadline it must be gone with its blocks."""
    scheduler, worker = make_scheduler(folder), make_worker()
    pool = scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    scheduler.add_request(make_request())
    step(scheduler, worker)
    if aborted:
        scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    time.sleep(2 * TIMEOUT_S)
    for _ in range(5):
        step(scheduler, worker)
    held = free - pool.get_num_free_blocks()
    assert not scheduler.requests, (
        f"r0 ({scheduler.requests['r0'].status.name}) is still held after its deadline, "
        f"with {held} blocks"
    )
    assert held == 0


def test_a_write_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    check_it_is_given_up(tmp_path, aborted=False)


def test_it_is_given_up_for_a_user_who_has_left(tmp_path: Path) -> None:
    check_it_is_given_up(tmp_path, aborted=True)
