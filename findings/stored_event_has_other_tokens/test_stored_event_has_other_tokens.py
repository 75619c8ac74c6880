"""vLLM 0.32.0, SimpleCPUOffloadConnector and sliding windows: an event of a stored block has the
tokens of another block.

`StoreRequestState.block_ids` lists each block that a request ever got. A window gives blocks up,
and the step that gives one up may use it again at once. `_prepare_eager_store_specs` then finds it
at its old position. The block is stored under the hash that it has now, and `BlockStored` has
the tokens and the parent of the old position.

Here the scheduler and the connector's scheduler side are the real ones; the worker copies nothing,
and reports each copy as done.

Run: pytest --noconftest test_stored_event_has_other_tokens.py
On 0.32.0 and 0.33.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_events import MEDIUM_CPU, BlockStored
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    maybe_convert_block_hash,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "is sent with tokens"

BLOCK_SIZE = 16
WINDOW = 2 * BLOCK_SIZE
CHUNK = 4 * BLOCK_SIZE  # max_num_batched_tokens
NUM_BLOCKS = 1 + 40  # 0 is the null block


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is looked up in the table that the request has in this step."""
    prepare: Any = SimpleCPUOffloadScheduler._prepare_eager_store_specs
    select: Any = SimpleCPUOffloadScheduler._select_eager_blocks_to_store

    def prepare_in_step(self: Any, scheduler_output: Any) -> Any:
        self.tables = scheduler_output.kv_connector_block_state
        return prepare(self, scheduler_output)

    def select_in_step(self: Any, state: Any, block_ids: Any) -> Any:
        table = self.tables.get_block_ids(state.request.request_id)
        return select(self, state, table or block_ids)

    released = SimpleCPUOffloadScheduler
    monkeypatch.setattr(released, "_prepare_eager_store_specs", prepare_in_step)
    monkeypatch.setattr(released, "_select_eager_blocks_to_store", select_in_step)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    """The scheduler of an engine with full attention and a sliding window."""
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
            kv_connector="SimpleCPUOffloadConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"cpu_bytes_to_use": 2**20},
        ),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 4}
    full = FullAttentionSpec(**shape, dtype=torch.float32)
    window = SlidingWindowSpec(**shape, dtype=torch.float32, sliding_window=WINDOW)
    page = full.page_size_bytes
    tensor = KVCacheTensor(
        size=page * NUM_BLOCKS, layers=["full", "window"], layer_stride=0, block_stride=page
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[
                KVCacheGroupSpec(["full"], full),
                KVCacheGroupSpec(["window"], window),
            ],
            # As a real engine: which blocks of a window are cached.
            prefix_cache_retention_interval=(
                vllm_config.cache_config.prefix_cache_retention_interval
            ),
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(num_prompt: int) -> Request:
    """A request whose tokens are their positions."""
    init_none_hash(sha256)
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(num_prompt)),
        sampling_params=SamplingParams(max_tokens=4, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler) -> None:
    """A step, in which the worker makes all copies."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    event = step.kv_connector_metadata.store_event
    worker = SimpleCPUOffloadWorkerMetadata({event: 1} if event >= 0 else {})
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=worker),
    )
    scheduler.update_from_output(step, ended)


def test_an_event_has_the_tokens_of_its_hash(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    publisher = scheduler.kv_event_publisher
    monkeypatch.setattr(publisher, "publish", lambda batch: events.extend(batch.events))
    request = make_request(7 * BLOCK_SIZE + 1)
    scheduler.add_request(request)
    for _ in range(6):  # two chunks of the prompt, and the answer
        take_step(scheduler)

    starts = range(0, 7 * BLOCK_SIZE, BLOCK_SIZE)
    keys = map(maybe_convert_block_hash, request.block_hashes)
    tokens = {key: [*range(at, at + BLOCK_SIZE)] for key, at in zip(keys, starts, strict=True)}
    stored = [each for each in events if isinstance(each, BlockStored)]
    stored = [each for each in stored if each.medium == MEDIUM_CPU]
    assert stored, "blocks are stored on the CPU"
    for each in stored:
        own, sent = tokens[each.block_hashes[0]], each.token_ids
        assert sent == own, (
            f"the hash of tokens {own[0]} to {own[-1]} is sent with tokens {sent[0]} to {sent[-1]}"
        )
