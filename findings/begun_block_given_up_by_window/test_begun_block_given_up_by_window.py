"""vLLM 0.32.0, NixlConnector, a model with full attention, sliding windows and Mamba, and Mamba
blocks that are wider than the others. Hits may then end inside a Mamba block.

D has loaded a prompt: all its blocks of full attention, and the end of its window. A second prompt
has a prefix of it, which full attention hits and the window does not. The load brings more tokens
than the hit has beyond the last whole Mamba block, so D gives these up, and asserts that the window
group has the blocks before. It has none, and the engine dies.

Run: pytest --noconftest test_begun_block_given_up_by_window.py
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
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "AssertionError"

BLOCK_SIZE, MAMBA_BLOCK_SIZE = 16, 32
WINDOW = 24
POOL = 40
"""Blocks that requests can have; the null block is one more."""
LOADED, SHARED, SECOND = 72, 48, 64
"""Tokens: the first prompt, what the second one shares with it, and the second prompt."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group other than full attention may lack blocks: the load brings its window or state."""

    def truncate(self: Any, blocks: Any, num_computed_tokens: int) -> Any:
        kept = []
        managers = self.coordinator.single_type_managers
        for group_blocks, manager in zip(blocks.blocks, managers, strict=True):
            assert num_computed_tokens % manager.block_size == 0
            num_blocks = num_computed_tokens // manager.block_size
            if isinstance(manager.kv_cache_spec, FullAttentionSpec):
                assert num_blocks <= len(group_blocks)
            kept.append(list(group_blocks[:num_blocks]))
        return self.create_kv_cache_blocks(tuple(kept))

    monkeypatch.setattr(KVCacheManager, "truncate_computed_blocks", truncate)


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
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=128
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=128,
            max_model_len=128,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_role="kv_consumer",
            engine_id="D",
        ),
        device_config=DeviceConfig("cpu"),
    )
    cache = vllm_config.cache_config
    cache.num_gpu_blocks = POOL + 1
    cache.mamba_cache_mode, cache.mamba_block_size = "align", MAMBA_BLOCK_SIZE
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=WINDOW, **shape)
    mamba = MambaSpec(
        block_size=MAMBA_BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    specs = enumerate((full, window, mamba))
    groups = [KVCacheGroupSpec([f"layer{index}"], spec) for index, spec in specs]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(POOL + 1, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=MAMBA_BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, prompt: list[int]) -> Request:
    """A request of which P offers all tokens but the last, after which a state is not needed."""
    init_none_hash(sha256)
    blocks = list(range(1, -(-len(prompt) // BLOCK_SIZE) + 1))
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": (blocks, blocks[-2:], blocks[-1:]),
        "remote_engine_id": "P",
        "remote_request_id": name,
        "remote_host": "localhost",
        "remote_port": 1234,
        "remote_num_tokens": len(prompt),
        "tp_size": 1,
    }
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler, **transfers: set[Any]) -> SchedulerOutput:
    """One step: schedule, sample one token for each scheduled request, and report the loads."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[7] for _ in names],
            kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
        ),
    )
    return output


def test_a_prefix_of_a_loaded_prompt_is_served(tmp_path: Path) -> None:
    decode = make_scheduler(tmp_path)
    first = list(range(LOADED))
    second = [*first[:SHARED], *range(1000, 1000 + SECOND - SHARED)]
    for name, prompt in (("first", first), ("second", second)):
        decode.add_request(make_request(name, prompt))
        loads = step(decode).kv_connector_metadata.reqs_to_recv
        assert set(loads) == {name}
        step(decode, finished_recving={name})
        step(decode)
    assert not decode.requests
