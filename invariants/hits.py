"""What a prefix hit must find in the cache, derived from what each kind of layer reads.

A request that hits some tokens computes the one after them next. What the layers of a group look at
then must be there (`arithmetic.first_token_read`). A drafter's layers are special: what they hold
for a token depends on the token after it. So in their groups one more block must match, which is
not taken; or the hash of each block covers the token after it, which must match too.
"""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun, first_token_read
from kvproof.model.config import Engine, Group
from kvproof.model.state import Key


def may_end_at(engine: Engine, hit: int) -> bool:
    """Whether something can be cached there in all groups: where a block of each of them ends, or,
    where hits may end inside a block, where a prefix has a hash."""
    if engine.partial_block_hits:
        return hit % engine.hash_unit == 0
    return all(hit % g.block_size == 0 for g in engine.groups if g.attention or g.aligned)


def alike_after_hit(engine: Engine) -> int:
    """Tokens after a hit that must be alike too: a block where a drafter has layers, or those that
    the hash of the last block covers."""
    return engine.hash_lookahead_tokens or max(
        (g.block_size for g in engine.groups if g.eagle), default=0
    )


def longest(engine: Engine, known: int, alike: int) -> int:
    """The longest hit of a request of `known` tokens, of which the first `alike` were seen before.
    One token at least is left to compute."""
    top = min(known - 1, alike - alike_after_hit(engine))
    return next((hit for hit in range(top, 0, -1) if may_end_at(engine, hit)), 0)


def positions(engine: Engine, group: Group, hit: int) -> Iterator[int]:
    """The positions of the blocks that must be cached for a hit."""
    size = group.block_size
    yield from range(first_token_read(group, hit) // size, blocks_begun(hit, size))
    if hit and group.eagle and not engine.hash_lookahead_tokens:
        yield hit // size


def serving(engine: Engine, group: Group, tokens: str, hit: int, position: int) -> list[str]:
    """The prefixes of which one must be cached for the block at this position, the longest first.

    A block that the hit does not end inside must be cached whole. Of one that it does, the slots
    up to there are needed: attention has them in a longer prefix too, if that leaves a token to
    compute. A state is that of one prefix only."""
    begin = position * group.block_size
    end = begin + group.block_size
    if not begin < hit < end:
        return [tokens[: end + engine.hash_lookahead_tokens]]
    if not group.attention:
        return [tokens[:hit]]
    return [tokens[:last] for last in range(min(end, len(tokens) - 1), hit - 1, -1)]


def missing(engine: Engine, keys: set[Key], tokens: str, hit: int) -> Iterator[tuple[int, str]]:
    """What a hit needs and the cache has not: groups, and the shortest prefix that would do."""
    for index, group in enumerate(engine.groups):
        for position in positions(engine, group, hit):
            prefixes = serving(engine, group, tokens, hit, position)
            if not any((index, prefix) in keys for prefix in prefixes):
                yield index, prefixes[-1]


def has_room(engine: Engine, hit: int, tokens: int) -> bool:
    """Whether an engine that is empty but for the cache can serve a request of `tokens` tokens with
    this hit, and has the null block left. A block that the hit ends inside is copied, and both are
    held until the copy is made."""
    held = 0
    for group in engine.groups:
        begun, size = blocks_begun(hit, group.block_size), group.block_size
        more = blocks_begun(tokens, size) - begun
        if group.kind == "mamba":
            more = min(more, 1)  # one running state, wherever it is
        if group.kind == "window":
            # What the window sees, and what the steps in flight compute; it may begin in a block.
            seen = group.window - 1 + engine.chunk_tokens * engine.steps_in_flight
            more = min(more, max(blocks_begun(seen, size) + 1 - begun, 0))
        copied = 1 if hit % size else 0
        held += sum(1 for _ in positions(engine, group, hit)) + copied + more
    return held < engine.num_blocks
