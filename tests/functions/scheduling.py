"""Drivers of the scheduler: chunks, hits, and a finished load. Schedulers and requests are real;
the driver sets the progress of a request."""

import functools
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from kvproof.live import build
from kvproof.model.config import EngineConfig, Group
from kvproof.model.state import SAMPLED, WAITING, Request

SAMPLED_ID = ord(SAMPLED)


@functools.cache
def _aligned(block_size: int, chunk_limit: int) -> tuple[EngineConfig, Scheduler]:
    groups = (Group("full", block_size), Group("mamba", block_size))
    engine = EngineConfig("E", groups, chunk_tokens=chunk_limit)
    return engine, build.scheduler(engine, "fail")


def arrived(engine: EngineConfig, prompt: int, outputs: int = 0, embeds: bool = False) -> Any:
    """A real request with `prompt` equal prompt tokens and `outputs` sampled tokens."""
    known = Request("r0", WAITING, "a" * prompt, prompt, outputs + 1, embeds=embeds)
    request = build.request(engine, known, {"do_remote_decode": True})
    if outputs:
        request.append_output_token_ids([SAMPLED_ID] * outputs)
    return request


def aligned_chunk(
    start: int, tokens: int, left: int, resumed: int, block_size: int, room: int, boundary: int
) -> tuple[int, int, int]:
    """`Scheduler._mamba_block_aligned_split`, for a start that was computed, hit, or loaded. Tokens
    that are known and not scheduled are `left`; `resumed` is how many of them are sampled. The
    chunk may have `room` more tokens, and the shared prefix ends with the block `boundary`."""
    engine, scheduler = _aligned(block_size, tokens + room)
    request = arrived(engine, start + tokens + left - resumed, resumed)
    request.shared_prefix_boundary = boundary * block_size
    split = scheduler._mamba_block_aligned_split
    hit, loaded = split(request, tokens, start, 0), split(request, tokens, 0, start)
    request.num_computed_tokens = start
    return int(split(request, tokens)), int(hit), int(loaded)


def longest_hit(known: int, block_size: int, units: int) -> int:
    """The hit tokens of `KVCacheManager.get_computed_blocks` where all blocks of a longer prompt
    are cached: in a full group, and in a window group with `units` times the block size and a
    window longer than the prompt."""
    unit = block_size * units
    cached = known + unit
    groups = (Group("full", block_size), Group("window", unit, window=cached + 1))
    blocks = cached // block_size + cached // unit + 4
    engine = EngineConfig("E", groups, blocks, chunk_tokens=cached)
    manager = build.scheduler(engine, "fail").kv_cache_manager
    before = arrived(engine, cached)
    before.request_id = "before"
    if manager.allocate_slots(before, cached) is None:
        raise MemoryError(f"{blocks} blocks do not hold {cached} tokens")
    return int(manager.get_computed_blocks(arrived(engine, known))[1])


def resumed(loaded: int, prompt: int) -> int:
    """The computed tokens after `Scheduler._update_waiting_for_remote_kv`."""
    engine = EngineConfig("D", (Group("full", 1),), loaded + 1, "decode")
    scheduler = build.scheduler(engine, "fail")
    request = arrived(engine, prompt)
    scheduler.kv_cache_manager.allocate_slots(
        request, 0, num_external_computed_tokens=loaded, delay_cache_blocks=True
    )
    request.num_computed_tokens = loaded
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    scheduler._update_waiting_for_remote_kv(request)
    return int(request.num_computed_tokens)
