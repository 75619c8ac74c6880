"""vLLM 0.32.0, ExampleConnector: where a kernel's blocks are smaller than the engine's, the first
prompt of a block ends the engine: IndexError.

A worker gets its KV caches in blocks of the kernel. The connector takes the place of a slot in them
from the engine's block size.

Here the scheduler, the connector's two sides and the allocation of the KV cache are the real ones;
the worker is called as a model runner calls it.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.worker.utils import allocate_kv_cache

from findings.helpers.offloading import make_kv_cache_of
from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "the worker cannot save the block"

BLOCK_SIZE = 16
KERNEL_BLOCK_SIZE = 8
NUM_BLOCKS = 1 + 20  # 0 is the null block
LAYER = "layer0"
NUM_PROMPT = BLOCK_SIZE + 4


class Engine:
    """A scheduler, a KV cache in blocks of a kernel, and the connector's worker side."""

    def __init__(self, folder: Path) -> None:
        config = create_vllm_config(
            kv_connector="ExampleConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"shared_storage_path": str(folder)},
        )
        config.cache_config.kv_cache_layout = "LBNHC"
        spec = FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
        )
        kv_cache = make_kv_cache_of(NUM_BLOCKS, spec)
        self.scheduler = create_scheduler(config, kv_cache_config=kv_cache)
        layout = config.cache_config.get_resolved_kv_cache_layout()
        cpu = torch.device("cpu")
        self.cache = allocate_kv_cache(kv_cache, cpu, layout, [KERNEL_BLOCK_SIZE])[LAYER]
        self.worker = ExampleConnector(config, KVConnectorRole.WORKER, kv_cache)

    def slots(self, block_id: int) -> torch.Tensor:
        """Return the part of the cache that is a block of the engine: a row for each slot."""
        ratio = BLOCK_SIZE // KERNEL_BLOCK_SIZE
        return self.cache[block_id * ratio : (block_id + 1) * ratio].transpose(1, 2).flatten(0, 1)

    def run(self, number: int) -> tuple[int, torch.Tensor]:
        """Serve a request. Returns the tokens that were loaded, and its first block after the
        load."""
        request = create_request(number, NUM_PROMPT, NUM_PROMPT, max_tokens=1)
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
        self.scheduler.update_from_output(step, create_model_runner_output([request]))
        return step.scheduled_new_reqs[0].num_computed_tokens, loaded


def test_a_block_is_saved_and_loaded(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.cache.copy_(torch.arange(engine.cache.numel()).view(engine.cache.shape))
    loaded, block = engine.run(1)
    assert loaded == 0
    assert engine.scheduler.reset_prefix_cache()
    engine.cache.zero_()
    loaded, again = engine.run(2)
    assert loaded == BLOCK_SIZE
    assert torch.equal(again, block)
