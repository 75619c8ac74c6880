"""vLLM 0.32.0 with KV events (`--kv-events-config`) and Mamba layers in align mode.

A chunk of three blocks leaves one Mamba state, at its end; the two blocks before it are null.
`BlockStored` has one hash and the tokens of all three blocks. A listener that computes its own
hashes cuts the tokens into blocks and assigns the hash to the first block (vllm#44451, open).
"""

from vllm.distributed.kv_events import BlockStored
from vllm.v1.core.kv_cache_manager import KVCacheManager

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "tokens are reported for"

BLOCK_SIZE = 16
NUM_TOKENS = 3 * BLOCK_SIZE


def test_an_event_carries_the_tokens_of_the_blocks_it_names() -> None:
    manager = KVCacheManager(
        make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align"),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        enable_kv_cache_events=True,
    )
    request = create_request(num_tokens=NUM_TOKENS + 1)
    assert manager.allocate_slots(request, NUM_TOKENS) is not None
    stored = [event for event in manager.take_events() if isinstance(event, BlockStored)]
    assert {event.group_idx for event in stored} == {0, 1}
    for event in stored:
        named = len(event.block_hashes) * event.block_size
        assert len(event.token_ids) == named, (
            f"{len(event.token_ids)} tokens are reported for {len(event.block_hashes)} "
            f"blocks of {event.block_size} tokens in group {event.group_idx}: the event does "
            "not say which tokens belong to which block"
        )
