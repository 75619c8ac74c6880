"""The capacity of an engine: the number of blocks that a request needs when it is alone on the
engine.
"""

import functools

from kvproof.model import config, group_needs
from kvproof.model.arithmetic import counts
from kvproof.model.state import NULL, Request, Table


def _grown(engine: config.EngineConfig, group: config.Group, table: Table, end: int) -> int:
    """The number of new blocks that a table with only hit blocks takes to reach `end` tokens."""
    return group_needs.grown(engine, group, table, end, engine.lookahead, fresh=True)


@functools.lru_cache(maxsize=1024)
def peak_blocks(engine: config.EngineConfig, tokens: int) -> int:
    """The most blocks that one request holds while it computes its first `tokens` tokens, for all
    start positions of its steps. Steps in flight keep the blocks that they read, and start as if
    all drafts of earlier steps were accepted."""
    peak = 0
    in_flight = (engine.steps_in_flight - 1) * engine.chunk_tokens
    for start in range(tokens + (engine.steps_in_flight - 1) * engine.drafts):
        decoded = start + min(1 + engine.drafts, engine.chunk_tokens)
        end = max(min(start + engine.chunk_tokens, tokens), decoded)
        held = 0
        for group in engine.groups:
            before = int(counts.blocks_for_tokens(start, group.block_size))
            skipped = group_needs.skipped_blocks(group, max(start - in_flight, 0))
            table = (NULL,) * before
            grown = _grown(engine, group, table, end)
            if engine.partial_block_hits and group.aligned and start % engine.hash_unit == 0:
                # A chunk that starts inside a block may copy it, and ends at its end.
                grown = max(grown, int(counts.copies_of_hit(start, group.block_size)))
            held += before - skipped + grown
        peak = max(peak, held)
    return peak


def at_most(engine: config.EngineConfig, group: config.Group, blocks: int, held: int = 0) -> int:
    """The largest number of further blocks that one request can have in a group at the same time.
    In a window group these cover the window and the chunks in flight, minus the `held` blocks
    (`SlidingWindowSpec.max_admission_blocks_per_request`)."""
    if group.kind != "window":
        return blocks
    seen = group.window - 1 + engine.chunk_tokens * engine.steps_in_flight
    most = int(counts.blocks_for_tokens(seen, group.block_size)) + 1
    return min(blocks, max(most - held, 0))


def reserved_blocks(engine: config.EngineConfig, tokens: int) -> int:
    """The number of blocks that must fit in the pool before vLLM admits a request of `tokens`
    tokens. For Mamba these are the state of a hit and the computed state.

    vLLM starts only where its longest request fits in this way, and refuses longer requests
    (`MambaSpec.max_memory_usage_bytes`).
    """
    reserved = 0
    for group in engine.groups:
        blocks = at_most(engine, group, _grown(engine, group, (), tokens))
        if group.aligned and engine.prefix_caching and tokens > group.block_size:
            blocks += 1
        reserved += blocks
    return reserved


def needed_blocks(engine: config.EngineConfig, tokens: int) -> int:
    """The number of blocks that an engine must have to admit and to hold a request of `tokens`
    tokens."""
    return max(peak_blocks(engine, tokens), reserved_blocks(engine, tokens))


def blocks_with_hit(engine: config.EngineConfig, hit: int, tokens: int) -> int:
    """The number of blocks that an engine must have to admit a request of `tokens` tokens with a
    hit of `hit` tokens, and to take its first step. Where the hit ends inside a block, the request
    has the cached block and the copy at the same time. The first step may have the width of a step
    with drafts, also for one token."""
    decoded = hit + min(1 + engine.drafts, engine.chunk_tokens)
    end = max(min(hit + engine.chunk_tokens, tokens), decoded)
    reserved = stepped = 0
    for group in engine.groups:
        table = (NULL,) * int(counts.blocks_for_tokens(hit, group.block_size))
        held = len(group_needs.blocks_needed(group, hit)) + int(
            counts.copies_of_hit(hit, group.block_size)
        )
        grown = _grown(engine, group, table, max(tokens, decoded))
        reserved += held + at_most(engine, group, grown, len(table))
        stepped += held + _grown(engine, group, table, end)
    return max(reserved, stepped)


def fits(needed: int, total: int) -> bool:
    """Whether a pool of `total` blocks, the null block included, has `needed` usable blocks."""
    return needed < total


def has_room_for_hit(engine: config.EngineConfig, hit: int, tokens: int) -> bool:
    """Whether an otherwise empty engine can hold a request of `tokens` tokens with a hit of `hit`
    tokens."""
    return fits(blocks_with_hit(engine, hit, tokens), engine.num_blocks)


def blocks_to_the_end(engine: config.EngineConfig, request: Request) -> int:
    """The number of blocks with which an engine can always finish a request. The last sampled token
    is never computed."""
    return needed_blocks(engine, len(request.prompt) + request.max_tokens - 1)


def can_hold(engine: config.EngineConfig, request: Request) -> bool:
    """Whether an otherwise empty engine can always finish a request."""
    return fits(blocks_to_the_end(engine, request), engine.num_blocks)
