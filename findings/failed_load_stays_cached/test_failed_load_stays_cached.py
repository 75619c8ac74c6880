"""vLLM 0.32.0, prefix caching and a KV connector that loads within the step, with
`kv_load_failure_policy` recompute. One engine, no async scheduling.

Blocks that a step loads are in the prefix cache as soon as the step is scheduled. The connector's
worker reports that it could not load some blocks. With the policy recompute these blocks stay in
the cache, because the request will compute them. If the request is aborted first, the next request
with the same prefix hits blocks that were never written.

Run: pytest --noconftest test_failed_load_stays_cached.py
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
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "that were never written"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_LOADED = 2 * BLOCK_SIZE
NUM_PROMPT = NUM_LOADED + 8
MAX_TOKENS = 2


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that must be computed again leave the cache until they are computed."""
    released = Scheduler._update_requests_with_invalid_blocks

    def update(self: Any, *args: Any, **named: Any) -> tuple[set[str], int, set[int]]:
        failed, tokens, blocks = released(self, *args, **named)
        self.kv_cache_manager.evict_blocks(blocks)
        (manager,) = self.kv_cache_manager.coordinator.single_type_managers
        for name in failed & set(manager.num_cached_block):
            computed = self.requests[name].num_computed_tokens // manager.block_size
            manager.num_cached_block[name] = min(manager.num_cached_block[name], computed)
        return failed, tokens, blocks

    monkeypatch.setattr(Scheduler, "_update_requests_with_invalid_blocks", update)


class Store(KVConnectorBase_V1):  # type: ignore[misc]
    """Offers the first tokens of one request, within the step."""

    def get_num_new_matched_tokens(self, request: Any, *_rest: Any) -> Any:
        return (NUM_LOADED if request.request_id == "loads" else 0), False

    def update_state_after_alloc(self, *_anything: Any) -> None:
        pass

    def build_connector_meta(self, *_anything: Any) -> Any:
        return KVConnectorMetadata()

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


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
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
            kv_connector="Store",
            kv_connector_module_path=__name__,
            kv_role="kv_both",
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


def make_request(name: str) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(NUM_PROMPT)),
        sampling_params=SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_output(
    scheduler: Scheduler, output: SchedulerOutput, token: int, invalid: set[int] | None = None
) -> None:
    """The output of a step arrives, with the blocks that the store failed to load."""
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[token] for _ in names],
            kv_connector_output=KVConnectorOutput(invalid_block_ids=invalid) if invalid else None,
        ),
    )


def loaded_blocks(scheduler: Scheduler) -> set[int]:
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("loads")
    return set(blocks[: NUM_LOADED // BLOCK_SIZE])


def test_a_block_that_was_not_loaded_is_no_hit(scheduler: Scheduler) -> None:
    scheduler.add_request(make_request("loads"))
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"loads": NUM_PROMPT - NUM_LOADED}
    failed = loaded_blocks(scheduler)
    take_output(scheduler, step, 7, failed)
    assert scheduler.requests["loads"].num_computed_tokens == 0
    scheduler.finish_requests("loads", RequestStatus.FINISHED_ABORTED)

    scheduler.add_request(make_request("alike"))
    step = scheduler.schedule()
    computed = step.scheduled_new_reqs[0].num_computed_tokens
    (blocks,) = scheduler.kv_cache_manager.get_block_ids("alike")
    hits = blocks[: computed // BLOCK_SIZE]
    assert not failed & set(hits), (
        f"{computed} tokens of a request count as computed, in blocks {hits} that were never "
        f"written: the store could not load {sorted(failed)}, and they stayed in the cache"
    )


def test_what_is_computed_again_is_a_hit(scheduler: Scheduler) -> None:
    """The patch must not pass by caching nothing."""
    scheduler.add_request(make_request("loads"))
    take_output(scheduler, scheduler.schedule(), 7, loaded_blocks(scheduler))
    take_output(scheduler, scheduler.schedule(), 7)
    scheduler.add_request(make_request("alike"))
    step = scheduler.schedule()
    assert step.scheduled_new_reqs[0].num_computed_tokens == NUM_LOADED
