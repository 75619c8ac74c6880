"""The blocks that one call of `allocate_slots` took and freed, read from the block tables between
its parts.

The tables are only read. Blocks that leave the tables in the first part are freed; blocks that the
last part adds are taken. A copy of a running state is in no table and is found among the pending
copies.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kvproof.live import adapt
from kvproof.model import block_lists
from kvproof.model.events import Lists


class BlockNotes:
    """The notes of one allocation at a time. `start` begins an allocation."""

    def __init__(self, manager: Any, partial: bool) -> None:
        self.manager = manager
        self.partial = partial
        self.managers = manager.coordinator.single_type_managers
        self.start()

    def start(self) -> None:
        """Forget the last allocation."""
        nothing: Lists = ((),) * len(self.managers)
        self.hit = self.brought = self.taken = self.freed = nothing

    def tables(self, name: str) -> Lists:
        """The block tables of a request."""
        return tuple(map(tuple, self.manager.get_block_ids(name)))

    def around_skip(
        self, original: Callable[..., Any], request_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Note the blocks freed because the computed tokens no longer need them."""
        before = self.tables(request_id)
        result = original(request_id, *args, **kwargs)
        freed = block_lists.freed(before, self.tables(request_id))
        self.freed = block_lists.both(self.freed, freed)
        return result

    def around_admission(
        self,
        original: Callable[..., Any],
        request_id: str,
        new_computed_blocks: Sequence[Sequence[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Note the blocks of the hit, and the blocks for the connector's tokens."""
        result = original(request_id, new_computed_blocks, *args, **kwargs)
        lengths = [len(blocks) for blocks in new_computed_blocks]
        self.hit, self.brought = block_lists.split(self.tables(request_id), lengths)
        return result

    def around_growth(
        self, original: Callable[..., Any], request_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Note the missing blocks that the request takes."""
        tables, pending = self.tables(request_id), self._copies()
        result = original(request_id, *args, **kwargs)
        copies = [copy for copy in self._copies() if copy not in pending]
        self.taken = block_lists.taken(tables, self.tables(request_id), copies)
        return result

    def _copies(self) -> list[tuple[int, int, int]]:
        """The copies that wait for the worker: group, source block and target block."""
        return [
            (index, source.block_id, copy.block_id)
            for index, manager in enumerate(self.managers)
            for source, copy in adapt.pending_copies(manager, self.partial)
        ]
