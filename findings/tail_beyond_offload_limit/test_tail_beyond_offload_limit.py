"""vLLM 0.32.0, OffloadingConnector: a request with `max_offload_tokens` ends the engine if its
prompt ends inside a Mamba block.

With `--prefix-match-unit`, the scheduler hands the state at the last match unit of a prompt (its
partial tail) to the connector. `_build_partial_tail_store_jobs` asserts that this boundary is not
above `max_offload_tokens`. The scheduler does not know that limit, which a client sets. The
limit 0 is taken for none there, so the tail is stored.

Here the scheduler and the connector are the real ones.

Run: pytest --noconftest test_tail_beyond_offload_limit.py
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
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
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
    MambaSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the tail beyond the limit that a client set"

BLOCK_SIZE = 16
MATCH_UNIT = 4
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = BLOCK_SIZE + 7  # whole match units: 20 tokens


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail beyond the limit of its request is left out."""
    released = OffloadingConnectorScheduler._build_partial_tail_store_jobs

    def build(self: Any, scheduler_output: Any) -> Any:
        state = scheduler_output.kv_connector_block_state
        handoffs = state.boundary_state_offloads if state else {}
        for name, entries in handoffs.items():
            limit = self._req_status[name].max_offload_tokens
            if limit is not None:
                entries[:] = [entry for entry in entries if entry[2] <= limit]
        return released(self, scheduler_output)

    monkeypatch.setattr(OffloadingConnectorScheduler, "_build_partial_tail_store_jobs", build)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with a CPU tier of 64 blocks or fewer."""
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
        cache_config=CacheConfig(
            block_size=BLOCK_SIZE,
            enable_prefix_caching=True,
            mamba_block_size=BLOCK_SIZE,
            mamba_cache_mode="align",
            prefix_match_unit=MATCH_UNIT,
        ),
        kv_transfer_config=KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"cpu_bytes_to_use": 2**18},
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    attention = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    page = attention.page_size_bytes
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        page_size_padded=page,
    )
    tensor = KVCacheTensor(
        size=page * NUM_BLOCKS,
        layers=["layer0", "layer1"],
        layer_stride=0,
        block_stride=page,
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[
                KVCacheGroupSpec(["layer0"], attention),
                KVCacheGroupSpec(["layer1"], mamba),
            ],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=MATCH_UNIT,
        log_stats=False,
    )


def make_request(limit: int) -> Request:
    """A request with a prompt of one whole block and a part of a second."""
    init_none_hash(sha256)
    request = Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_PROMPT)),
        sampling_params=SamplingParams(max_tokens=8, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(MATCH_UNIT, sha256),
    )
    request.kv_transfer_params = {"max_offload_tokens": limit}
    return request


def take_step(scheduler: Scheduler) -> list[int]:
    """A step. Returns the blocks that it has stored."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
    )
    scheduler.update_from_output(step, ended)
    jobs = step.kv_connector_metadata.store_jobs.values()
    return [block for job in jobs for block in job.src_spec.block_ids]


@pytest.mark.parametrize("limit", [BLOCK_SIZE, 0])
def test_no_more_is_stored_than_the_limit(limit: int, tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_request(limit))
    stored: list[int] = []
    try:
        for _ in range(4):
            stored += take_step(scheduler)
    except AssertionError as error:
        pytest.fail(f"the tail beyond the limit that a client set ends the engine: {error!r}")
    states_and_blocks = 2 * (limit // BLOCK_SIZE)
    assert len(stored) == states_and_blocks, "the tail beyond the limit that a client set is stored"
