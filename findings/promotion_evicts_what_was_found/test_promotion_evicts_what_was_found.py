"""vLLM 0.32.0, OffloadingConnector with a tier behind the CPU: a prompt that ends inside a Mamba
block ends the engine if the CPU tier is full.

With `--prefix-match-unit`, the connector first looks up the whole blocks of a prompt, and then what
is stored of the block in which it ends (its partial tail). If only the tier behind the CPU has the
tail, it is brought to the CPU, and the chunks that the first look-up has found there are evicted.
The tail is not there yet, so the whole blocks are loaded: `prepare_load` asserts that they are in
the cache.

Here the scheduler, the connector and its tiers are the real ones; the tier behind the CPU is vLLM's
example in memory.

Run: pytest --noconftest test_promotion_evicts_what_was_found.py
On 0.32.0 and 0.33.0 [released] fails and [patched] passes.
"""

import json
import mmap
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
    MambaSpec,
)
from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "not found in cache"

BLOCK_SIZE = 16
MATCH_UNIT = 4
NUM_BLOCKS = 1 + 20  # 0 is the null block
CPU_CHUNKS = 2  # the attention block and the state of one whole block
CHUNK_BYTES = mmap.PAGESIZE
NUM_PROMPT = BLOCK_SIZE + 7  # whole match units: 20 tokens


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought to the CPU evicts nothing that was found in the same step."""
    lookup = TieringOffloadingManager.lookup
    promote = TieringOffloadingManager._initiate_promotion
    end = TieringOffloadingManager.on_schedule_end
    found: dict[Any, None] = {}

    def looked_up(self: Any, key: Any, *more: Any, **named: Any) -> Any:
        result = lookup(self, key, *more, **named)
        if result is LookupResult.HIT:
            found[key] = None
        return result

    def promoted(self: Any, *arguments: Any) -> Any:
        prepare = self.primary_tier.prepare_write
        with monkeypatch.context() as block:
            block.setattr(
                self.primary_tier,
                "prepare_write",
                lambda keys, context: prepare([*found, *keys], context),
            )
            return promote(self, *arguments)

    def ended(self: Any, context: Any) -> None:
        end(self, context)
        found.clear()

    monkeypatch.setattr(TieringOffloadingManager, "lookup", looked_up)
    monkeypatch.setattr(TieringOffloadingManager, "_initiate_promotion", promoted)
    monkeypatch.setattr(TieringOffloadingManager, "on_schedule_end", ended)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """The scheduler of an engine with a CPU tier of two chunks, and a tier behind it."""
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
            kv_connector_extra_config={
                "cpu_bytes_to_use": CPU_CHUNKS * CHUNK_BYTES,
                "spec_name": "TieringOffloadingSpec",
                "secondary_tiers": [{"type": "example"}],
            },
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


def make_request(name: str) -> Request:
    """A request with a prompt of one whole block and a part of a second."""
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(NUM_PROMPT)),
        sampling_params=SamplingParams(max_tokens=4, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(MATCH_UNIT, sha256),
    )


def take_step(scheduler: Scheduler) -> None:
    """A step of which the worker has done all copies at its end."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    jobs = step.kv_connector_metadata
    numbers = [*jobs.store_jobs, *jobs.load_jobs]
    worker = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(numbers, 1))
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(
            finished_recving={job.req_id for job in jobs.load_jobs.values()},
            kv_connector_worker_meta=worker,
        ),
    )
    scheduler.update_from_output(step, ended)


def test_an_engine_survives_a_tail_that_is_not_in_memory(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    for name in ("r0", "r1"):
        scheduler.add_request(make_request(name))
        for _ in range(12):
            take_step(scheduler)
        assert not scheduler.requests
        assert scheduler.reset_prefix_cache()
