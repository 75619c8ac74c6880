"""This module turns the tokens of a watched request into hashes, one for each of its prefixes.

Hash `i` stands for the first `i + 1` tokens: it is the sum of their ids, each plus 1 and times a
random weight of its position. So two requests share a prefix if they have the same hash at its end,
and a long prompt is one sum over a column. The invariants see texts with one character for each
hash. Equal characters at one position mean equal prefixes there, so a text may begin anywhere
(`Prefix.start`): what an invariant finds out about the rest of a prompt is as true as about the
whole.
"""

from array import array
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import torch

MASK = (1 << 64) - 1
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Odd numbers of 64 bits, to mix the bits of another number (as splitmix64 does)."""

WEIGHTS_STEP = 0x9E3779B97F4A7C15
WEIGHTS = array("Q")
"""The weights of the positions from 0 on, as many as were needed so far."""

COLUMN_MIN = 48
"""The number of tokens from which on a column is faster than a loop."""

CHARACTER_BITS = 20
FIRST_CHARACTER = 0x10000


class Prefix(str):
    """The hashes of the tokens from `start` to the end of a prefix, as characters."""

    start: int

    def __new__(cls, text: str, start: int = 0) -> "Prefix":
        """Make a prefix that leaves out its first `start` tokens."""
        made = super().__new__(cls, text)
        made.start = start
        return made

    def __getitem__(self, key: SupportsIndex | slice) -> "Prefix":
        first = key.indices(len(self))[0] if isinstance(key, slice) else int(key)
        return Prefix(super().__getitem__(key), self.start + max(first, 0))

    def __add__(self, other: str) -> "Prefix":
        return Prefix(super().__add__(other), self.start)

    def __repr__(self) -> str:
        if not self:
            return "''"
        return f"<{self.start + len(self):,} tokens, {ord(self[-1:]) - FIRST_CHARACTER:05x}>"


class Tokens:
    """The tokens of one request, which only grow. `seed` stands for what all their KV depends on
    besides, as a LoRA."""

    def __init__(self, seed: Any, ids: Sequence[int]) -> None:
        self.hashes = array("Q")
        self._seed = hash(seed) & MASK
        self.extend(ids)

    def __len__(self) -> int:
        return len(self.hashes)

    def extend(self, ids: Sequence[int]) -> None:
        """Add tokens."""
        start, end = len(self.hashes), len(self.hashes) + len(ids)
        last = self.hashes[-1] if start else self._seed
        if end > len(WEIGHTS):
            _weigh(end)
        if len(ids) < COLUMN_MIN:
            append = self.hashes.append
            for token, weight in zip(ids, WEIGHTS[start:end], strict=True):
                last = last + (token + 1) * weight & MASK
                append(last)
        else:
            values = np.frombuffer(array("q", ids), np.uint64) + np.uint64(1)
            values = values * np.frombuffer(WEIGHTS[start:end], np.uint64)
            self.hashes.frombytes((np.cumsum(values) + np.uint64(last)).tobytes())

    def shares(self, other: "Tokens", tokens: int) -> bool:
        """Whether both begin with the same `tokens` tokens."""
        ends = min(len(self), len(other)) >= tokens
        return not tokens or (ends and self.hashes[tokens - 1] == other.hashes[tokens - 1])

    def in_common(self, other: "Tokens", least: int = 0) -> int:
        """Return the number of tokens with which both begin: `least` or more."""
        shortest, longest = least, min(len(self), len(other))
        while shortest < longest:
            middle = (shortest + longest + 1) // 2
            if self.shares(other, middle):
                shortest = middle
            else:
                longest = middle - 1
        return shortest

    def text(self, start: int, end: int) -> Prefix:
        """Return the prefix of `end` tokens, without its first `start`. Tokens that are not known
        are left out."""
        found = self.hashes[start:end]
        return Prefix(_characters(found) if found else "", start)

    def prefix(self, value: int, end: int, start: int) -> Prefix:
        """Return the prefix of `end` tokens with this hash, without its first `start`. If these
        tokens have another, only its last character is known."""
        if end <= len(self.hashes) and self.hashes[end - 1] == value:
            return self.text(start, end)
        return self.unknown(value, end, start)

    @staticmethod
    def unknown(value: int, end: int, start: int) -> Prefix:
        """Return a prefix of `end` tokens with this hash, of which nothing else is known."""
        return Prefix(UNKNOWN * (end - start - 1) + _characters(array("Q", (value,))), start)


def _weigh(end: int) -> None:
    """Make weights for twice as many positions."""
    places = np.arange(len(WEIGHTS), 2 * end, dtype=np.uint64) + np.uint64(1)
    mixed = places * np.uint64(WEIGHTS_STEP)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(FIRST)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(SECOND)
    WEIGHTS.frombytes((mixed ^ mixed >> np.uint64(31)).tobytes())


UNKNOWN = "?"


def _characters(hashes: "array[int]") -> str:
    """Return a character for each hash. The sums are mixed again: two prompts that differ in one
    token differ in all their characters after it by chance, and not by the same amount."""
    values = np.frombuffer(hashes, np.uint64)
    values = (values ^ values >> np.uint64(32)) * np.uint64(FIRST)
    codes = (values >> np.uint64(64 - CHARACTER_BITS)).astype("<u4") + np.uint32(FIRST_CHARACTER)
    return codes.tobytes().decode("utf-32-le")


def tokens_of(live: Any) -> Tokens:
    """Return the tokens of a request of vLLM. The ids of images and of embeddings do not say what
    they are, so their content counts instead."""
    ids = list(live.all_token_ids)
    embeds = getattr(live, "prompt_embeds", None)
    if embeds is not None:
        known = getattr(live, "prompt_is_token_ids", None) or [False] * len(embeds)
        rows = embeds.detach().cpu().contiguous().view(torch.uint8).numpy()
        for position, (row, is_token) in enumerate(zip(rows, known, strict=False)):
            if not is_token:
                ids[position] = hash(row.tobytes())
    for feature in getattr(live, "mm_features", None) or ():
        place = feature.mm_position
        for position in range(place.offset, min(place.offset + place.length, len(ids))):
            ids[position] = hash((ids[position], feature.identifier))
    return Tokens((str(live.lora_request), live.cache_salt), ids)
