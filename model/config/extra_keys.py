"""Extra keys: what the key of a block contains besides tokens. It may be the salt of a user, a LoRA
adapter, or a token that its session has dropped.

Two requests with the same token ids and other extra keys have other KV, and may share no block. So
their tokens are written in other letters, and every rule about prefixes holds as it stands.
"""

from typing import Literal

ExtraKey = Literal["", "salt", "adapter", "reloaded"]
"""Nothing, a `cache_salt`, a LoRA adapter, or a LoRA adapter of the same name that was loaded from
another path."""

ADAPTERS: tuple[ExtraKey, ...] = ("adapter", "reloaded")

FIRST: dict[ExtraKey, str] = {"salt": "ａ", "adapter": "ⓐ", "reloaded": "⒜"}
"""The letter that stands for the token `a` of a request with this extra key."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""The tokens that a request with an extra key may have."""

CAPITALS: dict[ExtraKey, str] = {"salt": "Ａ", "adapter": "Ⓐ", "reloaded": "🄐"}
"""The letter that stands for the embedded token `A` of a request with this extra key."""

_WRITTEN: dict[ExtraKey, dict[int, int]] = {
    key: {
        ord(letter): ord(first) + place
        for letters, first in ((LETTERS, FIRST[key]), (LETTERS.upper(), CAPITALS[key]))
        for place, letter in enumerate(letters)
    }
    for key in FIRST
}
_PLAIN = {new: old for table in _WRITTEN.values() for old, new in table.items()}

_AFTER_DROPPED: dict[int, int] = {
    ord(first) + place: ord(other) + place
    for first, other in zip(("a", *FIRST.values()), ("𝚊", "𝐚", "𝓪", "𝖆"), strict=True)
    for place in range(len(LETTERS))
}
_AS_SENT = {new: old for old, new in _AFTER_DROPPED.items()}


def written(tokens: str, extra_key: ExtraKey) -> str:
    """Write tokens in the letters of an extra key."""
    return tokens.translate(_WRITTEN[extra_key]) if extra_key else tokens


def key_of(tokens: str) -> ExtraKey:
    """The extra key in whose letters these tokens are written."""
    return next((key for key in FIRST if written(plain(tokens[:1]), key) == tokens[:1]), "")


def plain(tokens: str) -> str:
    """The tokens as the user sends them: in plain letters, without their extra key."""
    return with_no_token_dropped(tokens).translate(_PLAIN)


def after_a_dropped_token(tokens: str) -> str:
    """Write the tokens of a session that follow a dropped token in letters of their own. The hash
    of the block before them covers the dropped token, so no hash of another request covers both."""
    return tokens.translate(_AFTER_DROPPED)


def with_no_token_dropped(tokens: str) -> str:
    """The tokens in the letters that they would have if their session had dropped none."""
    return tokens.translate(_AS_SENT)
