"""This module says which events of a record matter to its findings."""

from collections.abc import Iterable, Set
from typing import NamedTuple

from kvproof.model.finding import Finding
from kvproof.model.records.lines import RecordedEvent


class RecordFocus(NamedTuple):
    """The requests and the blocks that findings are about. Without any, everything matters."""

    requests: Set[str]
    blocks: Set[int]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "RecordFocus":
        """Return what these findings are about."""
        abouts = [finding.about for finding in findings]
        blocks = {about.block for about in abouts if about.block is not None}
        return cls({about.request for about in abouts if about.request}, blocks)

    def near(self, event: RecordedEvent, freed: Iterable[int]) -> bool:
        """Whether an event does more with them than to compute tokens. `freed` are the blocks that
        it takes out of block tables."""
        if not self.requests and not self.blocks:
            return True
        blocks = {block for change in event.tables for block in change.blocks} | set(freed)
        return bool(self.requests & _requests(event)) or bool(self.blocks & blocks)


def _requests(event: RecordedEvent) -> set[str]:
    """Return the requests to which more happens than that tokens are computed."""
    found = {each.request for each in event.admitted} | {each.request for each in event.preempted}
    found |= {each.request for each in event.loads} | {each.request for each in event.offers}
    found |= {change.request for change in event.tables}
    found |= {*event.released, *event.loaded, *event.received, *event.failed, *event.sent}
    return found | set(event.ended) | ({event.arrived.request} if event.arrived else set())
