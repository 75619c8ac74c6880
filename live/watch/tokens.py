"""The tokens of a watched request as hashes, one for each of its prefixes.

Hash `i` stands for the first `i + 1` tokens, so two requests share a prefix if they have the same
hash at its end. The invariants see texts with one character for each hash. Equal characters at one
position mean equal prefixes there, so a text may begin anywhere (`Prefix.start`): what an invariant
finds out about the rest of a prompt is as true as about the whole.
"""

from array import array
from collections.abc import Iterable
from typing import Any, SupportsIndex

MASK = (1 << 64) - 1
FACTOR = 0x9E3779B97F4A7C15
CHARACTER_BITS = 20
FIRST_CHARACTER = 0x10000


class Prefix(str):
    """The hashes of the tokens from `start` to the end of a prefix, as characters."""

    start: int

    def __new__(cls, text: str, start: int = 0) -> "Prefix":
        """A prefix that leaves out its first `start` tokens."""
        made = super().__new__(cls, text)
        made.start = start
        return made

    def __getitem__(self, key: SupportsIndex | slice) -> "Prefix":
        first = key.indices(len(self))[0] if isinstance(key, slice) else int(key)
        return Prefix(super().__getitem__(key), self.start + max(first, 0))

    def __add__(self, other: str) -> "Prefix":
        return Prefix(super().__add__(other), self.start)

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> "Prefix":
        """The prefix with this fill up to a width."""
        return Prefix(super().ljust(width, fill), self.start)

    def __repr__(self) -> str:
        if not self:
            return "''"
        return f"<{self.start + len(self):,} tokens, {ord(self[-1:]) - FIRST_CHARACTER:05x}>"


class Tokens:
    """The tokens of one request, which only grow. `seed` stands for what all their KV depends on
    besides, as a LoRA."""

    def __init__(self, seed: Any, ids: Iterable[int]) -> None:
        self.hashes = array("Q")
        self._seed = hash(seed) & MASK
        self.extend(ids)

    def __len__(self) -> int:
        return len(self.hashes)

    def extend(self, ids: Iterable[int]) -> None:
        """Add tokens."""
        last = self.hashes[-1] if self.hashes else self._seed
        append = self.hashes.append
        for token in ids:
            last = (last ^ (token + 1)) * FACTOR & MASK
            last ^= last >> 29
            append(last)

    def shares(self, other: "Tokens", tokens: int) -> bool:
        """Whether both begin with the same `tokens` tokens."""
        if self is other or not tokens:
            return True
        ends = min(len(self), len(other)) >= tokens
        return ends and self.hashes[tokens - 1] == other.hashes[tokens - 1]

    def text(self, start: int, end: int) -> Prefix:
        """The prefix of `end` tokens, without its first `start`. What is not known is left out."""
        shift = 64 - CHARACTER_BITS
        chars = (chr(FIRST_CHARACTER + (each >> shift)) for each in self.hashes[start:end])
        return Prefix("".join(chars), start)


def tokens_of(live: Any) -> Tokens:
    """The tokens of a request of vLLM. The ids of images and of embeddings do not say what they
    are, so their content counts instead."""
    ids = list(live.all_token_ids)
    embeds = getattr(live, "prompt_embeds", None)
    if embeds is not None:
        known = getattr(live, "prompt_is_token_ids", None) or [False] * len(embeds)
        rows = zip(embeds, known, strict=False)
        for position, (row, is_token) in enumerate(rows):
            if not is_token:
                ids[position] = hash(tuple(row.tolist()))
    for feature in getattr(live, "mm_features", None) or ():
        place = feature.mm_position
        for position in range(place.offset, min(place.offset + place.length, len(ids))):
            ids[position] = hash((ids[position], feature.identifier))
    return Tokens((str(live.lora_request), live.cache_salt), ids)
