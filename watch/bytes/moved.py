"""This module has the sums of blocks that go from one engine to another, as the record of each side
keeps them."""

from kvproof.invariants.of_bytes import TRANSFERRED
from kvproof.model.records.lines import BlockSums
from kvproof.watch.bytes.entries import WatchedBlock
from kvproof.watch.slices import WatchedRequest


class Moved:
    """The blocks of a request in one group that hold its tokens from `first` to `tokens`."""

    def __init__(
        self, watched: WatchedRequest, group: int, size: int, first: int, tokens: int, *, sent: bool
    ) -> None:
        self.request = watched.live.request_id
        self.group = group
        self.at = first // size
        self.tokens = tokens
        self.sent = sent
        self._columns = [
            None if block.is_null else WatchedBlock(block.block_id, group, TRANSFERRED, filled=True)
            for block in watched.tables[group][self.at : -(-tokens // size)]
        ]

    @property
    def entries(self) -> list[WatchedBlock]:
        """The blocks of the request, without the null block."""
        return [entry for entry in self._columns if entry is not None]

    def sums(self, form: str) -> BlockSums:
        """Return the sums of the blocks as a line of a record. All must be known."""
        words = (f"{entry.sum or 0:016x}" if entry else "" for entry in self._columns)
        return BlockSums(
            request=self.request,
            sent=self.sent,
            group=self.group,
            at=self.at,
            tokens=self.tokens,
            form=form,
            sums=tuple(words),
        )
