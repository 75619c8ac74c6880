"""The arithmetic of the invariants. It does not use `model.arithmetic.counts`, because the machines
under test are built on `counts`: a mistake in `counts` would then hide itself."""

from kvproof.model.config import Group


def blocks_begun(tokens: int, size: int) -> int:
    """Number of blocks that `tokens` consecutive tokens touch; the last may be partly used."""
    return len(range(0, tokens, size))


def whole_blocks(tokens: int, size: int) -> int:
    """Number of blocks that `tokens` consecutive tokens fill completely."""
    return tokens // size


def in_common(a: str, b: str) -> int:
    """Length of the common prefix of two prompts, in tokens."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


def first_token_read(group: Group, computed: int) -> int:
    """The first token that a group reads when it computes the token after `computed` tokens.

    Full attention reads all tokens. A window of N tokens reads the N - 1 tokens before the new
    token. A Mamba layer reads the state after the last computed token.
    """
    if group.kind == "full":
        return 0
    back = group.window - 1 if group.kind == "window" else 1
    return max(computed - back, 0)
