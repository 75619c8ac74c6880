"""vLLM 0.32.0, async scheduling and a KV connector that loads within the step, with
`kv_load_failure_policy` recompute. Reported as vllm#45138 and vllm#49250.

The connector's worker reports with a step's output that it could not load some blocks.
`_update_requests_with_invalid_blocks` reduces the computed tokens to the start of the first of
them. It does not change the placeholders, also not the placeholder of the failed step, nor the step
that was dispatched meanwhile. The token of that step, computed on KV that was never loaded, is
emitted. The last token of the request is not, and the engine waits for it for ever. The request
also hangs without a second step in flight.

Run: pytest --noconftest test_poisoned_step_counts.py
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
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "after its load has failed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
MAX_MODEL_LEN = 20 * BLOCK_SIZE
NUM_LOADED = 2 * BLOCK_SIZE
NUM_PROMPT = NUM_LOADED + 8
MAX_TOKENS = 3
GOOD, POISONED = 7, 902


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps in flight of a request with a failed load are stale and dropped."""
    released = Scheduler._handle_invalid_blocks

    def handle(self: Any, *args: Any, **named: Any) -> set[str]:
        failed: set[str] = released(self, *args, **named)
        for name in failed:
            request = self.requests[name]
            request.num_stale_output_tokens = request.num_in_flight_tokens
            request.drop_stale_output = True
            request.num_output_placeholders = 0
        return failed

    monkeypatch.setattr(Scheduler, "_handle_invalid_blocks", handle)


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
            model=str(tmp_path),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_model_len=MAX_MODEL_LEN,
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
    # The platform sets this; the CPU platform sets it to False.
    vllm_config.scheduler_config.async_scheduling = True
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    return AsyncScheduler(
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


def run(scheduler: Scheduler, steps_behind: int) -> None:
    """The load of a request fails, with this number of steps dispatched after the step of the
    load."""
    request = make_request("loads")
    scheduler.add_request(request)
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"loads": NUM_PROMPT - NUM_LOADED}
    behind = [scheduler.schedule() for _ in range(steps_behind)]
    take_output(scheduler, step, POISONED, loaded_blocks(scheduler))
    for other in behind:
        take_output(scheduler, other, POISONED)
    for _ in range(MAX_TOKENS + 3):
        step = scheduler.schedule()
        if step.num_scheduled_tokens:
            take_output(scheduler, step, GOOD)
    emitted, ended = list(request.output_token_ids), request.is_finished()
    assert (emitted, ended) == ([GOOD] * MAX_TOKENS, True), (
        f"after its load has failed the request of {MAX_TOKENS} tokens emits {emitted}, "
        f"where {POISONED} was computed on KV never loaded, and "
        f"{'ends' if ended else 'never ends'}"
    )


def test_a_failed_load(scheduler: Scheduler) -> None:
    run(scheduler, steps_behind=0)


def test_a_failed_load_with_the_next_step_dispatched(scheduler: Scheduler) -> None:
    run(scheduler, steps_behind=1)
