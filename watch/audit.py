"""Which blocks are judged although no event has touched them: some in each step, one after another.

So every block is judged again and again, and what a step costs does not depend on the pool."""

import time

SLICE_BLOCKS = 16
"""The number of blocks in a step."""

IDLE_BLOCKS = 4096
"""The number of blocks when the engine has nothing to run, at most every `IDLE_SECONDS`."""

IDLE_SECONDS = 1.0


class Rounds:
    """Goes round the pool."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.at = 0
        self.idle_at = -IDLE_SECONDS

    def next(self, *, idle: bool) -> list[int]:
        """The blocks that are judged after this event."""
        now = time.monotonic() if idle else 0.0
        if idle and now - self.idle_at < IDLE_SECONDS:
            return []
        if idle:
            self.idle_at = now
        count = min(IDLE_BLOCKS if idle else SLICE_BLOCKS, self.blocks)
        begin, self.at = self.at, (self.at + count) % self.blocks
        return [number % self.blocks for number in range(begin, begin + count)]
