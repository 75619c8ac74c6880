"""What two prompts, or two states of a cache, have in common."""

from kvproof.model.state import Cached, Key


def common_prefix(a: str, b: str) -> int:
    """The number of tokens that two prompts share from the start."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def lost(before: Cached, after: Cached) -> tuple[tuple[Key, int], ...]:
    """The cache entries that `before` has and `after` lacks: pairs of a key and a block that was
    cached under it."""
    if before is after:
        return ()
    kept = {(key, block) for key, blocks in after for block in blocks}
    return tuple((k, b) for k, blocks in before for b in blocks if (k, b) not in kept)
