"""vLLM 0.32.0, NixlConnector, attention layers only, and a block of D wider than a block of P.

Both workers copy kernel blocks of the same size, but a block of D has two of them (for example
`--block-size 64` on P, `--block-size 128` on D, and a backend whose kernels need 64). D's list of
kernel blocks ends with the padding of its last block and is longer than P's list. D's worker
asserts that it is not longer, and all requests on D end with it. The handshake accepts the pair.

Run: pytest --noconftest test_longer_list_dies_across_ratios.py
On 0.32.0 [released] fails and [patched] passes.
"""

from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

FAILS_WITH = "worker dies on an assertion"

KERNEL_BLOCK_SIZE = 64
P_RATIO, D_RATIO = 1, 2
PROMPT_LENGTHS = (128, 192, 256, 300)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake refuses unequal numbers of kernel blocks per block."""
    released = NixlBaseConnectorWorker._validate_remote_agent_handshake

    def check(self: Any, peer: Any, *more: Any, **named: Any) -> Any:
        theirs = peer.physical_blocks_per_logical_kv_block
        if not self._has_mamba and theirs != self._physical_blocks_per_logical_kv_block:
            raise RuntimeError("Use the same --block-size on both engines.")
        return released(self, peer, *more, **named)

    monkeypatch.setattr(NixlBaseConnectorWorker, "_validate_remote_agent_handshake", check)


@pytest.fixture(params=["released", "patched"])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_worker(ratio: int) -> NixlBaseConnectorWorker:
    """D's worker, reduced to block lists: no peer, no memory."""
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    spec = FullAttentionSpec(block_size=ratio * KERNEL_BLOCK_SIZE, **shape)
    worker = object.__new__(NixlBaseConnectorWorker)
    worker.kv_cache_config = KVCacheConfig(
        1000, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer0"], spec)]
    )
    worker._has_mamba = False
    worker._physical_blocks_per_logical_kv_block = ratio
    worker._group_spec_types = (FullAttentionSpec,)
    return worker


def kernel_blocks(worker: Any, num_tokens: int, ratio: int) -> list[list[int]]:
    """The kernel blocks of a request on one engine; its blocks are numbered from 0."""
    blocks = list(range(cdiv(num_tokens, ratio * KERNEL_BLOCK_SIZE)))
    expanded = worker._logical_to_kernel_block_ids([blocks], ratio)
    return [list(group) for group in expanded]


def make_peer(ratio: int) -> MagicMock:
    """What P's worker reports to D of itself. Both engines register blocks of the kernel's size."""
    return MagicMock(
        engine_id="P",
        physical_blocks_per_logical_kv_block=ratio,
        kv_cache_layout="LBNHC",
        attn_backend_name="FLASHINFER",
        block_lens=[4096],
        block_strides=[4096],
        kv_caches_base_addr=[0],
        num_blocks=100,
        region_num_blocks=None,
        region_group_ids=None,
        region_names=None,
        region_mem_types=None,
    )


def refuses(ratio: int, peer_ratio: int) -> bool:
    """Whether the handshake of a worker refuses a peer with other blocks."""
    worker = MagicMock()
    worker.dcp_size = 1
    worker.use_mla = worker._has_mamba = worker.use_host_buffer = worker._is_hma_required = False
    worker._physical_blocks_per_logical_kv_block = ratio
    worker.vllm_config.cache_config.enable_prefix_caching = True
    worker.region_group_ids = worker._transfer_layer_region_indices = None
    worker._transfer_layer_names = None
    worker._head_sharded_draft_regions = ()  # required by 0.33.0
    worker.kv_cache_layout, worker.backend_name = "LBNHC", "FLASHINFER"
    worker.block_len_per_layer = [4096]
    worker._is_region_replicated.return_value = False
    worker.dst_num_blocks = {"P": 100}
    topology = worker.transfer_topo
    topology.tp_ratio.return_value = topology.block_size_ratio.return_value = 1
    topology.is_kv_replicated.return_value = False
    topology.total_num_kv_heads = topology.local_physical_heads = 1
    topology.get_engine_info.return_value.remote_tp_size = 1
    topology.get_engine_info.return_value.remote_dcp_size = 1
    check = NixlBaseConnectorWorker._validate_remote_agent_handshake
    try:
        check(worker, make_peer(peer_ratio), remote_tp_size=1)
    except RuntimeError:
        return True
    return False


@pytest.mark.usefixtures("code")
def test_padding_of_ds_last_block_is_no_reason_to_die() -> None:
    if refuses(D_RATIO, P_RATIO):
        return
    worker = make_worker(D_RATIO)
    died = {}
    for num_tokens in PROMPT_LENGTHS:
        decode = kernel_blocks(worker, num_tokens, D_RATIO)
        prefill = kernel_blocks(worker, num_tokens, P_RATIO)
        try:
            local, remote = worker._apply_prefix_caching(decode, prefill, D_RATIO, P_RATIO)
        except AssertionError:
            died[num_tokens] = (len(decode[0]), len(prefill[0]))
            continue
        needed = cdiv(num_tokens, KERNEL_BLOCK_SIZE)
        assert local[0] == remote[0] == list(range(needed))
    assert not died, (
        f"For prompts of {list(died)} tokens D's worker dies on an assertion "
        f"(kernel blocks of D, of P): {died}"
    )
