"""vLLM 0.32.0, NixlConnector, attention layers only, and a block of P wider than a block of D.

Both workers copy kernel blocks of the same size, but a block of P has two of them (for example
`--block-size 128` on P, `--block-size 64` on D, and a backend whose kernels need 64). P's list of
kernel blocks ends with the padding of its last block. D trims P's list at its front to the length
of its own list, as if the surplus were a prefix that D has cached. Each of D's blocks is filled
from the kernel block after the right one, and is then cached under the hash of the content that it
should have. The handshake accepts the pair.
"""

from vllm.utils.math_utils import cdiv

from findings.helpers.utils import make_kv_cache_config
from findings.helpers.workers import (
    KERNEL_BLOCK_SIZE,
    handshake_refuses,
    kernel_blocks,
    make_pull_worker,
)

FAILS_WITH = "are filled from kernel blocks of other tokens"

P_RATIO, D_RATIO = 2, 1
PROMPT_LENGTHS = (128, 192, 256, 300)


def test_each_block_of_d_is_filled_from_the_same_tokens_of_p() -> None:
    if handshake_refuses(D_RATIO, P_RATIO):
        return
    worker = make_pull_worker(make_kv_cache_config(D_RATIO * KERNEL_BLOCK_SIZE), D_RATIO)
    wrong = {}
    for num_tokens in PROMPT_LENGTHS:
        decode = kernel_blocks(worker, num_tokens, D_RATIO)
        prefill = kernel_blocks(worker, num_tokens, P_RATIO)
        local, remote = worker._apply_prefix_caching(decode, prefill, D_RATIO, P_RATIO)
        # On both engines, kernel block i holds the tokens from 64 * i on, because blocks are
        # numbered from 0.
        pairs = list(zip(local[0], remote[0], strict=True))
        assert len(pairs) >= cdiv(num_tokens, KERNEL_BLOCK_SIZE), "some tokens are not loaded"
        shifted = [(ours, theirs) for ours, theirs in pairs if ours != theirs]
        if shifted:
            wrong[num_tokens] = shifted
    assert not wrong, (
        f"For prompts of {list(wrong)} tokens D's blocks are filled from kernel blocks of "
        f"other tokens (D's, P's): {wrong}"
    )
