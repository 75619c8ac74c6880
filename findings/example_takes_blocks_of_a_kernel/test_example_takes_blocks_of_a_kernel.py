"""vLLM 0.32.0, ExampleConnector: where a kernel's blocks are smaller than the engine's, the first
prompt of a block ends the engine: IndexError.

A worker gets its KV caches in blocks of the kernel. The connector takes the place of a slot in them
from the engine's block size.

Here the scheduler, the connector's two sides and the allocation of the KV cache are the real ones;
the worker is called as a model runner calls it.

Run: pytest --noconftest test_example_takes_blocks_of_a_kernel.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from types import SimpleNamespace
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
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker.utils import allocate_kv_cache

FAILS_WITH = "the worker cannot save the block"

BLOCK_SIZE = 16
KERNEL_BLOCK_SIZE = 8
NUM_BLOCKS = 1 + 20  # 0 is the null block
LAYER = "layer0"
PROMPT = list(range(BLOCK_SIZE + 4))


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot is in the block of the cache that the worker got."""
    save, load = ExampleConnector.save_kv_layer, ExampleConnector.start_load_kv

    def saved(self: Any, name: str, kv_layer: torch.Tensor, *more: Any, **named: Any) -> None:
        self._block_size = kv_layer.shape[2]
        save(self, name, kv_layer, *more, **named)

    def loaded(self: Any, forward_context: Any, **named: Any) -> None:
        layers = forward_context.no_compile_layers.values()
        caches = [each.kv_cache for each in layers if getattr(each, "kv_cache", None) is not None]
        self._block_size = caches[0].shape[2]
        load(self, forward_context, **named)

    monkeypatch.setattr(ExampleConnector, "save_kv_layer", saved)
    monkeypatch.setattr(ExampleConnector, "start_load_kv", loaded)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


class Engine:
    """A scheduler, a KV cache in blocks of a kernel, and the connector's worker side."""

    def __init__(self, folder: Path) -> None:
        config = make_config(folder)
        spec = FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
        )
        page = spec.page_size_bytes
        tensor = KVCacheTensor(
            size=NUM_BLOCKS * page,
            layers=[LAYER],
            layer_stride=NUM_BLOCKS * page,
            block_stride=page,
        )
        kv_cache = KVCacheConfig(NUM_BLOCKS, [tensor], [KVCacheGroupSpec([LAYER], spec)])
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            log_stats=False,
        )
        layout = config.cache_config.get_resolved_kv_cache_layout()
        cpu = torch.device("cpu")
        self.cache = allocate_kv_cache(kv_cache, cpu, layout, [KERNEL_BLOCK_SIZE])[LAYER]
        self.worker = ExampleConnector(config, KVConnectorRole.WORKER, kv_cache)

    def slots(self, block_id: int) -> torch.Tensor:
        """The part of the cache that is a block of the engine: a row for each slot."""
        ratio = BLOCK_SIZE // KERNEL_BLOCK_SIZE
        return self.cache[block_id * ratio : (block_id + 1) * ratio].transpose(1, 2).flatten(0, 1)

    def run(self, name: str) -> tuple[int, torch.Tensor]:
        """Serve a request. Returns the tokens that were loaded, and its first block after the
        load."""
        init_none_hash(sha256)
        request = Request(
            request_id=name,
            prompt_token_ids=PROMPT,
            sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
            pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        )
        self.scheduler.add_request(request)
        step = self.scheduler.schedule()
        block = step.scheduled_new_reqs[0].block_ids[0][0]
        self.worker.bind_connector_metadata(step.kv_connector_metadata)
        layers = {LAYER: SimpleNamespace(kv_cache=self.cache)}
        context = SimpleNamespace(attn_metadata={LAYER: None}, no_compile_layers=layers)
        self.worker.start_load_kv(context)
        loaded = self.slots(block).clone()
        try:
            self.worker.save_kv_layer(LAYER, self.cache, None)
        except IndexError as error:
            pytest.fail(f"the worker cannot save the block of a prompt: {error}")
        done = ModelRunnerOutput([name], {name: 0}, sampled_token_ids=[[7]])
        self.scheduler.update_from_output(step, done)
        return step.scheduled_new_reqs[0].num_computed_tokens, loaded


def make_config(folder: Path) -> VllmConfig:
    """The config of an engine with files in this folder."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    config = VllmConfig(
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
            kv_connector="ExampleConnector",
            kv_role="kv_both",
            engine_id="E",
            kv_connector_extra_config={"shared_storage_path": str(folder / "store")},
        ),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.kv_cache_layout = "LBNHC"
    return config


def test_a_block_is_saved_and_loaded(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.cache.copy_(torch.arange(engine.cache.numel()).view(engine.cache.shape))
    loaded, block = engine.run("r0")
    assert loaded == 0
    assert engine.scheduler.reset_prefix_cache()
    engine.cache.zero_()
    loaded, again = engine.run("r1")
    assert loaded == BLOCK_SIZE
    assert torch.equal(again, block)
