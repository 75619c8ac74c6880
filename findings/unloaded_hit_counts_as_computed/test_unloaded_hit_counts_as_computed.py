"""vLLM 0.32.0, LMCacheMPConnector (the one in vLLM): blocks of a prompt are stored in LMCache
before they are computed. A later request with this prompt loads them, and gets wrong tokens.

The connector counts what is computed of a request: the tokens that were scheduled, and the blocks
that LMCache has. The latter were not loaded where the request must compute its whole prompt
(log-probabilities of the prompt), or where the load failed behind a hit in vLLM's own cache and the
policy is recompute. So of a prompt that is computed in chunks, blocks are stored too early.

Here the scheduler and the connector's scheduler side are the real ones. The package lmcache is not
needed: stand-ins take the place of the few names that vLLM imports from it. That of LMCache's
client answers each look-up with a number that the test sets, and does nothing else. The worker's
reports are written by hand.

Run: pytest --noconftest test_unloaded_hit_counts_as_computed.py
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

FAILS_WITH = "tokens are stored before they are computed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 6 * BLOCK_SIZE + 4
CHUNK = 20  # tokens of a step
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
    """What is computed is what the scheduler says, and what it schedules in this step."""
    module: Any = importlib.import_module(CONNECTOR)
    new = module.LMCacheMPConnector._process_new_requests
    cached = module.LMCacheMPConnector._process_cached_requests
    store = module.LMCacheMPRequestMetadata.GetStoreMetadata
    computed: dict[str, int] = {}

    def note_new(self: Any, step: Any, metadata: Any) -> None:
        for each in step.scheduled_new_reqs:
            computed[each.req_id] = each.num_computed_tokens
            computed[each.req_id] += step.num_scheduled_tokens[each.req_id]
        new(self, step, metadata)

    def note_cached(self: Any, step: Any, metadata: Any) -> None:
        each = step.scheduled_cached_reqs
        for name, tokens in zip(each.req_ids, each.num_computed_tokens, strict=True):
            computed[name] = tokens + step.num_scheduled_tokens[name]
        cached(self, step, metadata)

    def of_computed(tracker: Any, blocks_in_chunk: int, vllm_block_size: int) -> Any:
        hits = max(tracker.num_vllm_hit_blocks, tracker.num_lmcache_hit_blocks)
        tracker.num_scheduled_tokens = computed[tracker.request_id] - hits * vllm_block_size
        return store(tracker, blocks_in_chunk, vllm_block_size)

    monkeypatch.setattr(module.LMCacheMPConnector, "_process_new_requests", note_new)
    monkeypatch.setattr(module.LMCacheMPConnector, "_process_cached_requests", note_cached)
    monkeypatch.setattr(module.LMCacheMPRequestMetadata, "GetStoreMetadata", of_computed)


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
            max_num_batched_tokens=CHUNK,
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


def make_request(name: str, tokens: int, prompt_logprobs: int | None = None) -> Request:
    """A request whose prompt is the first tokens of one text."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(tokens)),
        sampling_params=SamplingParams(
            max_tokens=8, ignore_eos=True, prompt_logprobs=prompt_logprobs
        ),
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


def check_stores(scheduler: Scheduler, computed: int) -> None:
    """r1, of which so many tokens are computed, is computed to its end. What is stored after a
    step must have been computed."""
    early, stored = {}, 0
    while computed < NUM_PROMPT:
        step = take_step(scheduler)
        computed += step.num_scheduled_tokens["r1"]
        for op in ops(step, "STORE"):
            stored += 1
            if op.end > computed:
                early[op.end] = computed
    assert stored
    assert not early, (
        "tokens are stored before they are computed: those up to the first number, where those up "
        f"to the second are computed: {early}"
    )


def test_a_prompt_with_log_probabilities_is_computed_before_it_is_stored(
    scheduler: Scheduler,
) -> None:
    Client.found = 2 * BLOCK_SIZE
    scheduler.add_request(make_request("r1", NUM_PROMPT, prompt_logprobs=1))
    check_stores(scheduler, 0)


def test_a_prompt_whose_load_failed_is_computed_before_it_is_stored(scheduler: Scheduler) -> None:
    Client.found = 0
    scheduler.add_request(make_request("r0", BLOCK_SIZE + 1))
    take_step(scheduler)  # now vLLM's own cache has the first block
    scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    take_step(scheduler, finished_sending={"r0"})
    Client.found = 3 * BLOCK_SIZE
    scheduler.add_request(make_request("r1", NUM_PROMPT))
    step = scheduler.schedule()
    (load,) = ops(step, "RETRIEVE")
    assert (load.start, load.end) == (BLOCK_SIZE, 3 * BLOCK_SIZE)
    failed = KVConnectorOutput(finished_recving={"r1"}, invalid_block_ids=set(load.block_ids))
    ended = ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=failed)
    scheduler.update_from_output(step, ended)
    check_stores(scheduler, BLOCK_SIZE)
