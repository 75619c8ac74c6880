"""vLLM 0.32.0, LMCacheMPConnector (the one in vLLM), policy recompute: a request whose load failed
waits for ever, or LMCache gets KV of other tokens.

vLLM frees the blocks of the request and looks it up again. The connector still has its tracker of
the failed load, in the state READY and with the ids of the freed blocks. If LMCache has the prompt,
the connector promises a load again, and begins none. If LMCache has it no more, the request is
computed, and the connector appends its new blocks to the freed ones: what it stores under the key
of some tokens is the block of others.

Here the scheduler and the connector's scheduler side are the real ones. The package lmcache is not
needed: stand-ins take the place of the few names that vLLM imports from it. That of LMCache's
client answers each look-up with a number that the test sets, and does nothing else. The worker's
reports are written by hand.

Run: pytest --noconftest test_failed_load_stays_noted.py
On 0.32.0 [released] fails and [patched] passes.
"""

import importlib
import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the failed load is still noted"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 6 * BLOCK_SIZE + 4
FOUND = 3 * BLOCK_SIZE
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"


class Client:
    """In place of LMCacheMPSchedulerAdapter: LMCache has the first `found` tokens of each prompt,
    in chunks of one block."""

    found = 0

    def __init__(self, **_anything: Any) -> None:
        pass

    def num_blocks_per_chunk(self) -> int:
        return 1

    def check_lookup_result(self, _request_id: str) -> int:
        return self.found

    def ignore(self, *_anything: Any, **_more: Any) -> None:
        pass

    maybe_submit_lookup_request = cleanup_lookup_result = end_session = ignore
    free_lookup_locks = report_block_allocations = ignore


STAND_INS: dict[str, dict[str, Any]] = {
    "lmcache": {},
    "lmcache.utils": {"init_logger": logging.getLogger},
    "lmcache.integration": {},
    "lmcache.integration.vllm": {},
    "lmcache.integration.vllm.utils": {"mla_enabled": lambda _model: False},
    "lmcache.integration.vllm.vllm_multi_process_adapter": {
        "LMCacheMPSchedulerAdapter": Client,
        "LMCacheMPWorkerAdapter": object,
        "LoadStoreOp": SimpleNamespace,
        "ParallelStrategy": lambda *_anything: None,
    },
    "lmcache.v1": {},
    "lmcache.v1.multiprocess": {},
    "lmcache.v1.multiprocess.custom_types": {"RequestAllocationRecord": SimpleNamespace},
}
"""What vLLM imports of LMCache, by module."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting request whose tracker is past the look-up is one whose load has failed. It gets a
    new tracker and is offered nothing, so that it is computed."""
    module: Any = importlib.import_module(CONNECTOR)
    released = module.LMCacheMPConnector.get_num_new_matched_tokens

    def matched(self: Any, request: Request, num_computed_tokens: int) -> Any:
        tracker = self.request_trackers.get(request.request_id)
        state = module.LMCacheMPRequestState
        if (
            request.status == RequestStatus.PREEMPTED
            or tracker is None
            or tracker.state == state.PREFETCHING
        ):
            return released(self, request, num_computed_tokens)
        tracker = module.LMCacheMPRequestTracker(request)
        tracker.state = state.READY
        self.request_trackers[request.request_id] = tracker
        return 0, False

    monkeypatch.setattr(module.LMCacheMPConnector, "get_num_new_matched_tokens", matched)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in STAND_INS.items():
        stand_in = ModuleType(name)
        stand_in.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.delitem(sys.modules, CONNECTOR, raising=False)  # it may have had other stand-ins
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    """The scheduler of an engine with LMCache."""
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
            max_num_batched_tokens=BLOCK_SIZE,
            max_model_len=256,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="LMCacheMPConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_load_failure_policy="recompute",
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
    """A request with a prompt of six whole blocks and a part of a seventh."""
    init_none_hash(sha256)
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_PROMPT)),
        sampling_params=SamplingParams(max_tokens=8, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler, **reports: Any) -> Any:
    """A step, at whose end the worker makes these reports."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[] for _ in names],
        kv_connector_output=KVConnectorOutput(**reports),
    )
    scheduler.update_from_output(step, ended)
    return step


def ops(step: Any, direction: str) -> list[Any]:
    """What the worker is to load or to store in a step."""
    return [each.op for each in step.kv_connector_metadata.requests if each.direction == direction]


def fail_a_load(scheduler: Scheduler) -> None:
    """The load of r0's first three blocks fails."""
    Client.found = FOUND
    scheduler.add_request(make_request())
    step = scheduler.schedule()
    (load,) = ops(step, "RETRIEVE")
    assert (load.start, load.end) == (0, FOUND)
    failed = KVConnectorOutput(finished_recving={"r0"}, invalid_block_ids=set(load.block_ids))
    ended = ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=failed)
    scheduler.update_from_output(step, ended)


def test_a_request_goes_on_after_a_failed_load(scheduler: Scheduler) -> None:
    fail_a_load(scheduler)
    steps = [take_step(scheduler) for _ in range(20)]
    assert any(step.num_scheduled_tokens or ops(step, "RETRIEVE") for step in steps), (
        f"the failed load is still noted: in {len(steps)} steps r0 is neither computed nor loaded, "
        f"it is {scheduler.requests['r0'].status.name}"
    )


def test_what_is_stored_after_a_failed_load_is_of_its_tokens(scheduler: Scheduler) -> None:
    fail_a_load(scheduler)
    Client.found = 0  # LMCache has the prompt no more
    stored: dict[int, int] = {}
    for _ in range(NUM_PROMPT // BLOCK_SIZE):
        for op in ops(take_step(scheduler), "STORE"):
            stored |= dict(zip(range(op.start, op.end, BLOCK_SIZE), op.block_ids, strict=True))
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("r0")
    of = {block: place * BLOCK_SIZE for place, block in enumerate(blocks)}
    other = {token: of.get(block) for token, block in stored.items() if of.get(block) != token}
    assert stored
    assert not other, (
        "the failed load is still noted: stored is for the tokens from the first number on the "
        f"block of those from the second on: {other}"
    )
