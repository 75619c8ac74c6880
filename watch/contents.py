"""What each block of a watched engine holds: for each slot the hash of a prefix (see `tokens`).

A slot of an attention block holds the KV of the last token of its prefix. A Mamba block has one
slot, with the state after its prefix. What was never seen written is unknown, and is not judged.
"""

from array import array

from kvproof.model.config import EngineConfig
from kvproof.model.state import Content
from kvproof.watch.tokens import Prefix, Tokens

UNKNOWN = -1
"""The group of a block of which nothing is known."""

EMPTY = -2
"""The group of a block that was taken and not written since."""

NOTHING = 0
"""The hash in a slot that was not written since the block was taken."""


class Contents:
    """Keep the content of the blocks of an engine: one number for each slot of the pool. Nothing
    else is kept of a finished request, so the memory does not depend on the requests.

    `group` is the group of a block, and `first` the position of the token whose prefix is in its
    first slot. `later` has blocks with a state after a token that is not known yet, because steps
    overlap, and the tokens of their request.
    """

    def __init__(self, cfg: EngineConfig, blocks: int) -> None:
        self.cfg = cfg
        self.width = max((g.block_size for g in cfg.groups if g.attention), default=1)
        blocks += 1  # the last is for the id -1, which no block has that is used rightly
        self.slots = array("Q", (NOTHING,)) * (self.width * blocks)
        self.group = array("h", (UNKNOWN,)) * blocks
        self.first = array("q", (0,)) * blocks
        self.later: dict[int, Tokens] = {}

    def take(self, block: int) -> None:
        """Note that a block is taken: it holds nothing of its new request."""
        self.forget(block)
        self.group[block] = EMPTY

    def forget(self, block: int) -> None:
        """Forget what a block holds: its content is unknown from now on."""
        self.group[block] = UNKNOWN
        self.later.pop(block, None)

    def leave(self, block: int) -> None:
        """Note that a request gives up a block. If the token of its state is not known by now, the
        state stays unknown."""
        if block in self.later:
            self._settle(block)
            self.later.pop(block, None)

    def write(self, block: int, group: int, tokens: Tokens, start: int, end: int) -> None:
        """Write the KV of the tokens from `start` to `end` into one attention block."""
        size = self.cfg.groups[group].block_size
        base, at = block * self.width, start % size
        self.later.pop(block, None)
        if end - start < size:
            self._open(block, group, start - at)
        else:
            self.group[block], self.first[block] = group, start
        self.slots[base + at : base + at + end - start] = tokens.hashes[start:end]

    def _open(self, block: int, group: int, first: int) -> None:
        """Begin to write a block from the position `first` on. If it held something else, this is
        lost."""
        if self.group[block] != group or self.first[block] != first:
            self.group[block], self.first[block] = group, first
            self._erase(block, 0)

    def _erase(self, block: int, slot: int) -> None:
        erased = array("Q", (NOTHING,)) * (self.width - slot)
        self.slots[block * self.width + slot : (block + 1) * self.width] = erased

    def state(self, block: int, group: int, tokens: Tokens, end: int) -> None:
        """Write the state after `end` tokens into a block."""
        self.group[block], self.first[block] = group, end - 1
        self.slots[block * self.width] = NOTHING
        self.later[block] = tokens
        self._settle(block)

    def _settle(self, block: int) -> None:
        tokens = self.later.get(block)
        if tokens is not None and self.first[block] < len(tokens):
            self.slots[block * self.width] = tokens.hashes[self.first[block]]
            del self.later[block]

    def undo(self, block: int, end: int) -> None:
        """Erase the tokens of a block from `end` on, because they were not computed after all."""
        if self.group[block] >= 0:
            self._erase(block, max(end - self.first[block], 0))

    def copy(self, source: int, target: int) -> None:
        """Copy a whole block."""
        self.forget(target)
        if source in self.later:
            self.later[target] = self.later[source]
        self.group[target], self.first[target] = self.group[source], self.first[source]
        begin, end = source * self.width, (source + 1) * self.width
        self.slots[target * self.width : (target + 1) * self.width] = self.slots[begin:end]

    def holds(self, block: int, group: int, tokens: Tokens, start: int, end: int) -> bool | None:
        """Whether a block holds the KV of the tokens from `start` to `end` of a request, or their
        state. None where it is unknown: a state may be written where no step ends, by drafts."""
        found = self.group[block]
        if found == EMPTY:
            return False if self.cfg.groups[group].attention else None
        if found == UNKNOWN:
            return None
        if found != group:
            return False
        base = block * self.width
        if not self.cfg.groups[group].attention:
            self._settle(block)
            return end <= len(tokens) and self.slots[base] == tokens.hashes[end - 1]
        base += start % self.cfg.groups[group].block_size
        return self.slots[base : base + end - start] == tokens.hashes[start:end]

    def seen(self, block: int, tokens: Tokens, cut: int) -> Content | None:
        """Return the content of a block in the terms of the invariants, without the first `cut`
        tokens. A prefix that is not of these tokens is shown by its length and its hash."""
        group = self.group[block]
        if group < 0:
            return None
        self._settle(block)
        of_group = self.cfg.groups[group]
        base, size = block * self.width, of_group.block_size if of_group.attention else 1
        prefixes = (
            tokens.prefix(value, end, cut) if value != NOTHING else Prefix("")
            for end, value in enumerate(self.slots[base : base + size], self.first[block] + 1)
        )
        return Content(group, tuple(prefixes))
