"""vLLM 0.32.0, NixlConnector, attention layers only, and a block of D wider than a block of P.

Both workers copy kernel blocks of the same size, but a block of D has two of them (for example
`--block-size 64` on P, `--block-size 128` on D, and a backend whose kernels need 64). D's list of
kernel blocks ends with the padding of its last block and is longer than P's list. D's worker
asserts that it is not longer, and all requests on D end with it. The handshake accepts the pair.
"""

from vllm.utils.math_utils import cdiv

from findings.helpers.utils import make_kv_cache_config
from findings.helpers.workers import (
    KERNEL_BLOCK_SIZE,
    handshake_refuses,
    kernel_blocks,
    make_pull_worker,
)

FAILS_WITH = "worker dies on an assertion"

P_RATIO, D_RATIO = 1, 2
PROMPT_LENGTHS = (128, 192, 256, 300)


def test_padding_of_ds_last_block_is_no_reason_to_die() -> None:
    if handshake_refuses(D_RATIO, P_RATIO):
        return
    worker = make_pull_worker(make_kv_cache_config(D_RATIO * KERNEL_BLOCK_SIZE), D_RATIO)
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
