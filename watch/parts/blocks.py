"""Blocks whose reference count or key has changed."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.model.needs import Need
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class TouchedBlocks(Part):
    """The blocks that an event touches, with all requests that hold them and all their keys."""

    view = Views.BLOCKS.value

    def hidden(self) -> Mapping[Need, str]:
        """A connector may hold blocks by itself."""
        if not holds_blocks(self.scheduler.connector):
            return {}
        return {Need.REFERENCES: "the connector holds references to blocks, too"}

    def questions(self) -> Iterator[Question]:
        """All touched blocks at once."""
        blocks = {block for block in self.seen.blocks if block >= 0}
        if blocks:
            yield self.question(self.slices.of_blocks(blocks))


def holds_blocks(connector: Any) -> bool:
    """Whether a connector gets the block pool, to hold blocks of it by itself."""
    mine = getattr(type(connector), "bind_gpu_block_pool", None)
    bases = type(connector).__mro__[1:]
    base = next((b for b in bases if b.__name__ == "KVConnectorBase_V1"), None)
    return mine is not getattr(base, "bind_gpu_block_pool", None)
