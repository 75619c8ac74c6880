"""Drivers of the NIXL connector: the tokens that P leaves to D, the blocks that P offers, and how D
pairs them.

The scheduler side belongs to a real scheduler. The worker side is `live.driver.nixl.worker`, which
is not started.
"""

import functools
from typing import Any

from kvproof.live import build
from kvproof.live.driver import nixl
from kvproof.model.config import EngineConfig, Group
from kvproof.model.config.engine import Role
from kvproof.model.config.group import Kind
from tests.functions.scheduling import arrived

DIES = -1
"""What a driver returns for each number where vLLM raises AssertionError."""


@functools.cache
def _connected(group: Group, role: Role) -> tuple[EngineConfig, Any]:
    """An engine with full attention and this group, and the scheduler side of its connector."""
    engine = EngineConfig("E", (Group("full", group.block_size), group), role=role)
    return engine, build.scheduler(engine, "fail").connector.connector_scheduler


def _other(backoff: int) -> Group:
    """A group with this backoff: with a Mamba group vLLM leaves one token to D, with a window
    none."""
    return Group("mamba", 2) if backoff else Group("window", 2, 3)


def remote_count(prompt: int, backoff: int) -> int:
    """`_get_remote_prefill_token_count`, with a Mamba group where `backoff` is 1."""
    _, connector = _connected(_other(backoff), "decode")
    return int(connector._get_remote_prefill_token_count(prompt))


def truncated(prompt: int, backoff: int, times: int, embeds: int) -> tuple[int, int, int]:
    """`_truncate_request_for_prefill`, called `times` times. Returns three numbers of tokens:
    vLLM's counter for the prompt, its counter for all tokens, and the actual length of the
    prompt."""
    engine, connector = _connected(_other(backoff), "prefill")
    request = arrived(engine, prompt, embeds=embeds == 1)
    for _ in range(times):
        connector._truncate_request_for_prefill(request)
    prompted = request.prompt_embeds if embeds else request.prompt_token_ids
    return int(request.num_prompt_tokens), int(request.num_tokens), len(prompted)


def _clipped(group: Group, blocks: int) -> tuple[int, int]:
    _, connector = _connected(group, "prefill")
    kept = connector.get_exchange_clipped_blocks((list(range(blocks)), list(range(blocks))))[1]
    return (kept[0] if kept else 0), len(kept)


def window_offer(blocks: int, window: int, block_size: int) -> tuple[int, int]:
    """The first block of a window that `get_exchange_clipped_blocks` keeps, and the number of kept
    blocks."""
    return _clipped(Group("window", block_size, window), blocks)


def state_offer(blocks: int) -> tuple[int, int]:
    """The same for a Mamba group."""
    return _clipped(Group("mamba", 2), blocks)


def _span(whole: list[int], part: list[int]) -> tuple[int, int]:
    """Where a part of a list begins and ends in the list, `(0, 0)` for an empty part."""
    if not part:
        return 0, 0
    first = whole.index(part[0])
    if whole[first : first + len(part)] != list(part):
        raise AssertionError(f"{part} is no run of {whole}")
    return first, first + len(part)


def paired(
    kind: Kind, tokens: int, hit_blocks: int, local_ratio: int, remote_ratio: int
) -> tuple[int, int, int, int]:
    """The slices that `_apply_prefix_caching` takes of the lists of a full-attention group, with a
    second group of this kind. A kernel block holds one token. `DIES` where it raises."""
    worker = nixl.worker(EngineConfig("D", (Group("full", 4), Group(kind, 4, 9)), role="decode"))
    ours = list(range(hit_blocks * local_ratio, -(-tokens // local_ratio) * local_ratio))
    theirs = list(range(-(-tokens // remote_ratio) * remote_ratio))
    one = [0]
    try:
        local, remote = worker._apply_prefix_caching(
            [ours, one], [theirs, one], local_ratio, remote_ratio
        )
    except AssertionError:
        return (DIES,) * 4
    return (*_span(ours, local[0]), *_span(theirs, remote[0]))


def kernel_block(kernel: int, ratio: int) -> tuple[int, int]:
    """The logical block that `_logical_to_kernel_block_ids` expands to a list with this kernel
    block, and the position of the kernel block in the list."""
    worker = nixl.worker(EngineConfig("D", (Group("full", ratio),), physical_per_logical=ratio))
    for block in range(kernel + 1):
        expanded = [int(k) for k in worker._logical_to_kernel_block_ids([[block]], ratio)[0]]
        if kernel in expanded:
            return block, expanded.index(kernel)
    raise AssertionError(f"no logical block holds kernel block {kernel}")
