"""What a prefix hit must find in the cache, derived from what each kind of layer reads.

A request that hits some tokens computes the next token. Everything that the layers of a group read
for it must be cached (`arithmetic.first_token_read`). The layers of a drafter are different: what
they hold for a token depends on the token after it. In a group with such layers, one more block
must match, which is not part of the hit. Or the hash of each block covers the token after it, which
must match too.
"""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun, first_token_read
from kvproof.model.config import EngineConfig, Group
from kvproof.model.state import Key


def may_end_at(engine: EngineConfig, hit: int, loads: bool = False) -> bool:
    """Whether a hit of this length is owed in all groups: a block of each group ends there, or a
    hash exists there if hits may end inside a block. A request that `loads` what follows may load
    the begun block too, so that no block is copied."""
    if engine.partial_block_hits and not loads:
        return hit % engine.hash_unit == 0
    return all(hit % g.block_size == 0 for g in engine.groups if g.attention or g.aligned)


def alike_after_hit(engine: EngineConfig, ended: bool = False) -> int:
    """Number of tokens after a hit that must match too: one block if a drafter has layers, or the
    tokens after a block that its hash covers. Where the earlier prompt `ended` and hits may end
    inside a block, its last prefix with a hash is cached, and the tokens between two hashes are
    enough."""
    block = max((g.block_size for g in engine.groups if g.eagle), default=0)
    if ended and engine.partial_block_hits:
        block = min(block, engine.hash_unit)
    return engine.hash_lookahead_tokens or block


def longest(engine: EngineConfig, known: int, alike: int, loads: bool = False) -> int:
    """The longest hit that a request of `known` tokens is owed, of which the first `alike` tokens
    were computed before, all of them by a prompt that ended there. At least one token is left to
    compute. `loads` is as in `may_end_at`."""
    top = min(known - 1, alike - alike_after_hit(engine, ended=alike == known))
    return next((hit for hit in range(top, 0, -1) if may_end_at(engine, hit, loads)), 0)


def positions(engine: EngineConfig, group: Group, hit: int) -> Iterator[int]:
    """The positions of the blocks that must be cached for a hit."""
    size = group.block_size
    after = 1 if hit and _reads_next(engine, group) else 0
    yield from range(first_token_read(group, hit) // size, blocks_begun(hit + after, size))


def _reads_next(engine: EngineConfig, group: Group) -> bool:
    """Whether the token after a hit must match too, and no hash covers it."""
    return group.eagle and not engine.hash_lookahead_tokens


def serving(engine: EngineConfig, group: Group, tokens: str, hit: int, position: int) -> list[str]:
    """The prefixes that can serve the block at this position, the longest first; one of them must
    be cached.

    If the hit does not end inside the block, the whole block must be cached. If it does, only the
    slots before the end of the hit are needed, and with a drafter's layers the slot after it. A
    prefix has the tokens after its end that its hash covers. An
    attention block of a longer prefix has these slots too, and may be used if one token is left to
    compute. A Mamba state belongs to one prefix only.
    """
    begin = position * group.block_size
    end = begin + group.block_size
    ahead = 1 if engine.partial_block_hits and _reads_next(engine, group) else 0
    covered = engine.hash_lookahead_tokens
    if not begin < hit + ahead < end:
        return [tokens[: end + covered]]
    if not group.attention:
        return [tokens[: hit + covered]]
    last_known = len(tokens) - 1 + ahead
    return [tokens[: last + covered] for last in range(min(end, last_known), hit + ahead - 1, -1)]


def missing(
    engine: EngineConfig, keys: set[Key], tokens: str, hit: int
) -> Iterator[tuple[int, str]]:
    """What the hit needs and the cache lacks: pairs of a group's index and the shortest prefix that
    would serve."""
    for index, group in enumerate(engine.groups):
        for position in positions(engine, group, hit):
            prefixes = serving(engine, group, tokens, hit, position)
            if not any((index, prefix) in keys for prefix in prefixes):
                yield index, prefixes[-1]


def has_room(engine: EngineConfig, hit: int, tokens: int) -> bool:
    """Whether an engine without other requests can serve a request of `tokens` tokens with this
    hit; one block is the null block.

    If the hit ends inside a block, this block is copied, and both blocks are held until the copy is
    made.
    """
    held = 0
    for group in engine.groups:
        begun, size = blocks_begun(hit, group.block_size), group.block_size
        more = blocks_begun(tokens, size) - begun
        if group.kind == "mamba":
            more = min(more, 1)  # one running state, at any position
        if group.kind == "window":
            # The tokens that the window reads and those that the steps in flight compute. The
            # window may begin inside a block.
            seen = group.window - 1 + engine.chunk_tokens * engine.steps_in_flight
            more = min(more, max(blocks_begun(seen, size) + 1 - begun, 0))
        copied = 1 if hit % size else 0
        held += sum(1 for _ in positions(engine, group, hit)) + copied + more
    return held < engine.num_blocks
