"""What one engine can ever hold: the need of a request that is alone on it.

It is a fact of the cluster, whatever fault the reference has: it asks `counts` and no rules.
"""

import functools

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import groups, pool
from kvproof.model.state import NULL, Request, Table


def _grown(engine: config.Engine, group: config.Group, table: Table, end: int) -> int:
    """New blocks that a table takes to reach `end` tokens, where it has hits only."""
    return groups.grown(engine, group, table, end, engine.lookahead, counts, fresh=True)


@functools.lru_cache(maxsize=1024)
def peak_blocks(engine: config.Engine, tokens: int) -> int:
    """The most blocks one request holds on an engine while it computes its first `tokens` tokens,
    wherever hits and chunks make its steps start. Steps in flight keep what they read, and start as
    if the drafts of those ahead were right."""
    peak = 0
    in_flight = (engine.steps_in_flight - 1) * engine.chunk_tokens
    for start in range(tokens + (engine.steps_in_flight - 1) * engine.drafts):
        decoded = start + min(1 + engine.drafts, engine.chunk_tokens)
        end = max(min(start + engine.chunk_tokens, tokens), decoded)
        held = 0
        for group in engine.groups:
            before = int(counts.blocks_for_tokens(start, group.block_size))
            skipped = groups.skipped_blocks(group, max(start - in_flight, 0), counts)
            table = (NULL,) * before
            grown = _grown(engine, group, table, end)
            if engine.partial_block_hits and group.aligned and start % engine.hash_unit == 0:
                # A chunk that starts inside a block may copy it, and ends with it.
                grown = max(grown, int(counts.copies_of_hit(start, group.block_size)))
            held += before - skipped + grown
        peak = max(peak, held)
    return peak


def at_most(engine: config.Engine, group: config.Group, blocks: int, held: int = 0) -> int:
    """As many more blocks as one request ever has of a group at a time: of a window those of the
    chunks in flight and of the tokens it sees, beside those `held`
    (`SlidingWindowSpec.max_admission_blocks_per_request`)."""
    if group.kind != "window":
        return blocks
    seen = group.window - 1 + engine.chunk_tokens * engine.steps_in_flight
    most = int(counts.blocks_for_tokens(seen, group.block_size)) + 1
    return min(blocks, max(most - held, 0))


def reserved_blocks(engine: config.Engine, tokens: int) -> int:
    """Blocks that must fit for a request of so many tokens to be let in at all: of Mamba the state
    of a hit and the one to be computed.

    vLLM starts only where its longest request fits like this, and refuses longer ones
    (`MambaSpec.max_memory_usage_bytes`).
    """
    reserved = 0
    for group in engine.groups:
        blocks = at_most(engine, group, _grown(engine, group, (), tokens))
        if group.aligned and engine.prefix_caching and tokens > group.block_size:
            blocks += 1
        reserved += blocks
    return reserved


def needed_blocks(engine: config.Engine, tokens: int) -> int:
    """Blocks that an engine must have for a request of so many tokens: for what it holds, and to
    let it in."""
    return max(peak_blocks(engine, tokens), reserved_blocks(engine, tokens))


def blocks_with_hit(engine: config.Engine, hit: int, tokens: int) -> int:
    """Blocks that a request of so many tokens with a hit holds: with one that ends inside a block
    the cached block and its copy at once."""
    held = 0
    for group in engine.groups:
        table = (NULL,) * int(counts.blocks_for_tokens(hit, group.block_size))
        held += len(groups.blocks_needed(group, hit, counts)) + int(
            counts.copies_of_hit(hit, group.block_size)
        )
        grown = _grown(engine, group, table, tokens)
        held += at_most(engine, group, grown, len(table))
    return held


def has_room_for_hit(engine: config.Engine, hit: int, tokens: int) -> bool:
    """Whether an engine that is otherwise empty can hold a request of so many tokens with a hit."""
    return pool.fits(blocks_with_hit(engine, hit, tokens), engine.num_blocks)


def blocks_to_the_end(engine: config.Engine, request: Request) -> int:
    """Blocks that an engine must have to be sure to serve a request to its end. The last sampled
    token is never computed."""
    return needed_blocks(engine, len(request.prompt) + request.max_tokens - 1)


def can_hold(engine: config.Engine, request: Request) -> bool:
    """Whether an engine that is otherwise empty is sure to serve a request to its end."""
    return pool.fits(blocks_to_the_end(engine, request), engine.num_blocks)
