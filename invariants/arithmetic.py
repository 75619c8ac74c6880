"""The few numbers that invariants compute themselves. They do not ask `model.counts`, which the
machines they judge are built on: a mistake there must not pass its own judge."""

from kvproof.model.config import Group


def blocks_begun(tokens: int, size: int) -> int:
    """Blocks of which at least one slot is used when `tokens` tokens are put in a row."""
    return len(range(0, tokens, size))


def whole_blocks(tokens: int, size: int) -> int:
    """Blocks of which each slot is used when `tokens` tokens are put in a row."""
    return tokens // size


def in_common(a: str, b: str) -> int:
    """Tokens that two prompts share from the start."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


def first_token_read(group: Group, computed: int) -> int:
    """The first token that the layers of a group look at when they compute the token after
    `computed` others: full attention looks at all, a window of N at the N - 1 before that token,
    and a Mamba layer at the state that the last of them has left."""
    if group.kind == "full":
        return 0
    back = group.window - 1 if group.kind == "window" else 1
    return max(computed - back, 0)
