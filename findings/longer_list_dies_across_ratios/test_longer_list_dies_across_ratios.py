"""vLLM 0.32.0, NixlConnector, attention layers only, and a block of D wider than a block of P.

Both workers copy kernel blocks of the same size, but a block of D has two of them (for example
`--block-size 64` on P, `--block-size 128` on D, and a backend whose kernels need 64). D's list of
kernel blocks ends with the padding of its last block and is longer than P's list. D's worker
asserts that it is not longer, and all requests on D end with it.

Run: pytest --noconftest test_longer_list_dies_across_ratios.py
On 0.32.0 [released] fails and [patched] passes. test_end_trim_across_ratios.py shows that the
handshake accepts such a pair.
"""

from typing import Any

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
    """With unequal ratios the surplus is padding, so the lists are paired from the front.

    This is right if D has hit no prefix. The handshake would have to refuse prefix caching for such
    a pair, as it does with a Mamba group.
    """
    released = NixlBaseConnectorWorker._apply_prefix_caching

    def pair(
        self: Any,
        decode_block_ids: Any,
        prefill_block_ids: Any,
        decode_physical_per_logical: int,
        prefill_physical_per_logical: int,
    ) -> Any:
        ratios = decode_physical_per_logical, prefill_physical_per_logical
        if ratios[0] == ratios[1]:
            return released(self, decode_block_ids, prefill_block_ids, *ratios)
        both = list(zip(decode_block_ids, prefill_block_ids, strict=True))
        common = [min(len(ours), len(theirs)) for ours, theirs in both]
        return (
            [ours[:n] for (ours, _), n in zip(both, common, strict=True)],
            [theirs[:n] for (_, theirs), n in zip(both, common, strict=True)],
        )

    monkeypatch.setattr(NixlBaseConnectorWorker, "_apply_prefix_caching", pair)


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


@pytest.mark.usefixtures("code")
def test_padding_of_ds_last_block_is_no_reason_to_die() -> None:
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
