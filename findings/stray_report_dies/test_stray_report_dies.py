"""vLLM 0.32.0, MultiConnector with NixlConnector and a connector that saves what a request has when
it ends, and a request that is aborted while it loads. Reported as vllm#46240 and vllm#43226.

`LMCacheMPConnector.request_finished` returns True for every request, an aborted one too: it reports
the end of the save. NixlConnector reports the end of the read. The scheduler frees the request at
the first of the two reports, asserts at the second that it still has the request, and dies.

Here the scheduler and MultiConnector are the real ones; `Saves` returns True as LMCache's connector
does, which is not installed with vLLM. The worker's two reports are written by hand.

Run: pytest --noconftest test_stray_report_dies.py
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
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the scheduler dies at a report of the aborted request"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
READ, SAVED = {"finished_recving": {"r0"}}, {"finished_sending": {"r0"}}
ORDERS = {
    "read, saved": [READ, SAVED],
    "saved, read": [SAVED, READ],
    "in one step": [READ | SAVED],
}


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a request are freed at the last of its reports."""
    finished, free_request = Scheduler._connector_finished, Scheduler._free_request
    free_blocks = Scheduler._free_blocks
    reports: dict[str, int] = {}

    def of_save(self: Any, request: Request) -> Any:
        saves, params = finished(self, request)
        reports[request.request_id] += saves
        return saves, params

    def of_read(self: Any, request: Request, delay_free_blocks: bool = False) -> Any:
        reports[request.request_id] = int(delay_free_blocks)
        return free_request(self, request, delay_free_blocks)

    def free(self: Any, request: Request) -> None:
        reports[request.request_id] -= 1
        if reports[request.request_id] <= 0:
            free_blocks(self, request)

    monkeypatch.setattr(Scheduler, "_connector_finished", of_save)
    monkeypatch.setattr(Scheduler, "_free_request", of_read)
    monkeypatch.setattr(Scheduler, "_free_blocks", free)


class Saves(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Has nothing to load, and saves each request that ends."""

    def get_num_new_matched_tokens(self, *_anything: Any) -> Any:
        return 0, False

    def update_state_after_alloc(self, *_anything: Any) -> None:
        pass

    def build_connector_meta(self, *_anything: Any) -> Any:
        return KVConnectorMetadata()

    def request_finished(self, *_anything: Any) -> Any:
        return True, None

    def request_finished_all_groups(self, *_anything: Any) -> Any:
        return True, None

    def start_load_kv(self, *_anything: Any, **_more: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, *_anything: Any, **_more: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass


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
    saves = {"kv_connector": "Saves", "kv_connector_module_path": __name__, "kv_role": "kv_both"}
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
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
            kv_connector="MultiConnector",
            kv_role="kv_both",
            engine_id="D",
            kv_connector_extra_config={"connectors": [nixl, saves]},
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
    """A request that D loads from P."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": ([1, 2, 3],),
        "remote_engine_id": "P",
        "remote_request_id": "r0",
        "remote_host": "localhost",
        "remote_port": 1234,
        "remote_num_tokens": 3 * BLOCK_SIZE,
        "tp_size": 1,
    }
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(3 * BLOCK_SIZE)),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_the_engine_survives_an_abort(tmp_path: Path, order: str) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request())
    scheduler.schedule()
    assert scheduler.requests["r0"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    for reports in ORDERS[order]:
        output = scheduler.schedule()
        ended = ModelRunnerOutput(
            req_ids=[], req_id_to_index={}, kv_connector_output=KVConnectorOutput(**reports)
        )
        try:
            scheduler.update_from_output(output, ended)
        except AssertionError:
            pytest.fail(f"{order}: {FAILS_WITH}")
    assert not scheduler.requests
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == NUM_BLOCKS - 1
