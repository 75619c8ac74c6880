"""vLLM 0.32.0, NixlConnector with `kv_buffer_device="cpu"` on a device, and a model with several
KV cache groups: D overwrites what it has loaded.

Layers of different groups share a tensor on the device: a block belongs to one of them. Each layer
has a buffer of its own on the host, and NIXL reads a block of P into the buffers of the layers of
its group. `NixlBaseConnectorWorker.sync_recved_kv_to_device` copies the blocks of all groups
from the buffers of all layers, one layer after another. For a shared tensor the last layer wins,
and its buffer has nothing of the blocks of the other group.

Here the functions that make the buffers and copy them are the real ones, over tensors of a CPU that
are shared as vLLM shares them. NIXL is not needed: what it has read is written to the buffers by
hand.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker

FAILS_WITH = "the device has other bytes than the host"

BLOCK_SIZE, NUM_BLOCKS = 16, 8
READ = {"full": [1, 2, 3], "window": [4, 5]}
"""The blocks of a request on D, by group."""


def copy_blocks(source: Any, target: Any, from_ids: Any, to_ids: Any, _direction: str) -> None:
    """Do what vLLM's `copy_kv_blocks` does, without a device."""
    for name, cache in source.items():
        target[name][to_ids] = cache[from_ids]


def make_worker(window_heads: int) -> Any:
    """Make D's worker, reduced to its caches and buffers: a layer of full attention and one of a
    sliding window, which share a tensor."""
    full = torch.zeros(NUM_BLOCKS, 1, BLOCK_SIZE, 8)
    worker: Any = object.__new__(NixlPullConnectorWorker)
    worker.device_kv_caches = {
        "full": full,
        "window": full.view(NUM_BLOCKS, window_heads, BLOCK_SIZE, 8 // window_heads),
    }
    worker.use_mla, worker.kv_cache_layout = False, "LBHNC"
    worker.use_host_buffer, worker.copy_blocks = True, copy_blocks
    worker.initialize_host_xfer_buffer(worker.device_kv_caches)
    for buffer in worker.host_xfer_buffers.values():
        buffer.fill_(-1)  # the buffers are not initialised
    return worker


@pytest.mark.parametrize("window_heads", [1, 2])
def test_the_device_has_what_was_read(window_heads: int) -> None:
    worker = make_worker(window_heads)
    for name, blocks in READ.items():
        for block in blocks:
            worker.host_xfer_buffers[name][block] = float(block)  # what NIXL has read from P
    meta = SimpleNamespace(local_physical_block_ids=tuple(READ.values()))
    worker.sync_recved_kv_to_device("r0", meta)
    wrong = [
        block
        for name, blocks in READ.items()
        for block in blocks
        if not bool((worker.device_kv_caches[name][block] == block).all())
    ]
    assert not wrong, f"{FAILS_WITH} in blocks {wrong}"
