"""vLLM 0.32.0, NixlConnector, and blocks of P narrower than those of D (`--block-size`): where D
has the beginning of a prompt in its own cache, its blocks are filled from the wrong blocks of P. So
are those of sliding windows, without a hit.

D cuts its blocks into pieces as wide as P's blocks. The last block of D may have pieces behind the
end of the prompt, for which P has no block. They are left out only where D's list is the longer
one. D's list without the blocks of a hit is shorter, and both lists are then paired from the end.
A list of window blocks may begin with pieces that P does not offer, and they are paired from the
front.

Here the functions that pair the lists are the real ones; the lists are written by hand.
"""

import pytest
from vllm.utils.math_utils import cdiv

from findings.helpers.utils import make_kv_cache_config
from findings.helpers.workers import make_pull_worker

FAILS_WITH = "are filled from the KV of other tokens"

P_BLOCK, D_BLOCK = 16, 32
RATIO = D_BLOCK // P_BLOCK
WINDOW = 64
PROMPT_LENGTHS = range(66, 130)


def exchanged(num_tokens: int, block_size: int, hit: int = 0) -> list[list[int]]:
    """Return the blocks of a prompt that an engine exchanges, without those of a hit of so many
    tokens. Block i has the tokens from i * block_size on."""
    blocks = list(range(cdiv(num_tokens, block_size)))
    first_of_window = max(num_tokens - WINDOW, 0) // block_size
    begins = hit // block_size, max(hit // block_size, first_of_window)
    return [blocks[begin:] for begin in begins]


def shifted(num_tokens: int, hit: int) -> list[tuple[int, int, int]]:
    """Return the pieces of D's blocks that get other tokens: the group, and the first token of D's
    piece and of P's block."""
    worker = make_pull_worker(make_kv_cache_config(D_BLOCK, swa_enabled=True, sw_size=WINDOW))
    local, remote = exchanged(num_tokens, D_BLOCK, hit), exchanged(num_tokens, P_BLOCK)
    local, remote = worker._map_block_ids_for_block_size_ratio(local, remote, RATIO)
    local, remote = worker._apply_prefix_caching(local, remote, 1, 1)
    return [
        (group, ours * P_BLOCK, theirs * P_BLOCK)
        for group, lists in enumerate(zip(local, remote, strict=True))
        for ours, theirs in zip(*lists, strict=True)
        if ours != theirs
    ]


@pytest.mark.parametrize("hit", [0, D_BLOCK])
def test_each_piece_is_filled_with_its_own_tokens(hit: int) -> None:
    wrong = {length: found for length in PROMPT_LENGTHS if (found := shifted(length, hit))}
    first = next(iter(wrong.items()), None)
    assert not wrong, (
        f"{len(wrong)} of {len(PROMPT_LENGTHS)} lengths of a prompt, {hit} tokens in D's cache: "
        "blocks are filled from the KV of other tokens. The first (length; group, first token of "
        f"D's piece, of P's block): {first}"
    )
