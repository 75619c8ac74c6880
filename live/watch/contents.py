"""What each block of a watched engine holds: of which tokens, up to which position.

A block of an attention group holds the KV of consecutive tokens; a Mamba block holds one state. A
block keeps what was written to it last, as parts of the tokens of one request or, after a copy, of
several. What was never seen written is unknown, and is not judged.
"""

from typing import NamedTuple

from kvproof.live.watch.tokens import Prefix, Tokens
from kvproof.model.config import Engine
from kvproof.model.state import Content


class Part(NamedTuple):
    """The KV of the tokens from `start` to `end` of a request."""

    tokens: Tokens
    start: int
    end: int


class Filled(NamedTuple):
    """The content of one block. `first` is the position of its first token. A Mamba block has one
    part, whose end is where the state was taken."""

    group: int
    first: int
    parts: tuple[Part, ...]


class Contents:
    """The content of the blocks of an engine.

    Most blocks have one part. These are kept in dictionaries of plain values, and not as an object
    each: Python's garbage collector would look at all objects again and again."""

    def __init__(self, cfg: Engine) -> None:
        self.cfg = cfg
        self._several: dict[int, Filled] = {}
        self._fresh: set[int] = set()
        self._tokens: dict[int, Tokens] = {}
        self._group: dict[int, int] = {}
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {}

    def of(self, block: int) -> Filled | None:
        """What a block holds, None where it is unknown."""
        tokens = self._tokens.get(block)
        if tokens is None:
            return self._several.get(block)
        group, start, end = self._group[block], self._start[block], self._end[block]
        size = self.cfg.groups[group].block_size
        first = start // size * size if self.cfg.groups[group].attention else start
        return Filled(group, first, (Part(tokens, start, end),))

    def _put(self, block: int, filled: Filled) -> None:
        self.forget(block)
        if len(filled.parts) == 1:
            [(self._tokens[block], self._start[block], self._end[block])] = filled.parts
            self._group[block] = filled.group
        else:
            self._several[block] = filled

    def take(self, block: int) -> None:
        """A block is taken: it holds nothing of its new request."""
        self.forget(block)
        self._fresh.add(block)

    def forget(self, block: int) -> None:
        """Nothing is known of a block any more."""
        self._fresh.discard(block)
        self._tokens.pop(block, None)
        self._several.pop(block, None)

    def write(self, block: int, group: int, first: int, part: Part) -> None:
        """Write the KV of some tokens into a block whose first token has position `first`."""
        old = self.of(block)
        kept: list[Part] = []
        if old is not None and old.group == group and old.first == first:
            for each in old.parts:
                before = each._replace(end=min(each.end, part.start))
                after = each._replace(start=max(each.start, part.end))
                kept += [side for side in (before, after) if side.start < side.end]
        parts = sorted((*kept, part), key=lambda each: each.start)
        self._put(block, Filled(group, first, tuple(_joined(parts))))

    def state(self, block: int, group: int, tokens: Tokens, end: int) -> None:
        """Write the state after `end` tokens into a block."""
        self._put(block, Filled(group, end - 1, (Part(tokens, end - 1, end),)))

    def undo(self, block: int, end: int) -> None:
        """The tokens from `end` on of a block were drafts that were rejected."""
        old = self.of(block)
        if old is not None:
            parts = (each._replace(end=min(each.end, end)) for each in old.parts)
            self._put(block, old._replace(parts=tuple(p for p in parts if p.start < p.end)))

    def copy(self, source: int, target: int) -> None:
        """Copy a whole block."""
        old = self.of(source)
        if old is None:
            self.forget(target)
        else:
            self._put(target, old)

    def holds(self, block: int, group: int, tokens: Tokens, start: int, end: int) -> bool | None:
        """Whether a block holds the KV of these tokens of a request. None where it is unknown. A
        state may be written where no step ends, by drafts."""
        found = self.of(block)
        if found is None:
            empty = block in self._fresh and self.cfg.groups[group].attention
            return False if empty else None
        if found.group != group:
            return False
        at = start
        for part in found.parts:
            if part.start <= at < part.end and part.tokens.shares(tokens, min(part.end, end)):
                at = part.end
        return at >= end

    def seen(self, block: int, cut: int) -> Content | None:
        """The content in the terms of the invariants, without the first `cut` tokens."""
        found = self.of(block)
        if found is None:
            return None
        if not self.cfg.groups[found.group].attention:
            [part] = found.parts
            return Content(found.group, (part.tokens.text(cut, part.end),))
        slots = [Prefix("")] * self.cfg.groups[found.group].block_size
        for part in found.parts:
            for position in range(part.start, min(part.end, len(part.tokens))):
                slots[position - found.first] = part.tokens.text(cut, position + 1)
        return Content(found.group, tuple(slots))


def _joined(parts: list[Part]) -> list[Part]:
    """The parts, with neighbours of the same tokens as one."""
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].tokens is part.tokens and joined[-1].end == part.start:
            joined[-1] = joined[-1]._replace(end=part.end)
        else:
            joined.append(part)
    return joined
