"""The blocks that a step takes."""

from collections.abc import Iterator

from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class Allocations(Part):
    """All allocations of a step, with what was predicted for them."""

    view = Views.ALLOCATIONS.value

    def questions(self) -> Iterator[Question]:
        """All at once."""
        allocations = tuple(self.seen.allocations) if self.seen.event.what == "schedule" else ()
        if allocations:
            yield self.question(effects=Effects(allocations=allocations), times=len(allocations))
