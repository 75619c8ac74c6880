"""Requests whose blocks have changed."""

from collections.abc import Iterator, Mapping

from kvproof.model.needs import Need
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class TouchedRequests(Part):
    """The requests that an event touches, without the tokens at their beginning that are
    settled."""

    view = Views.REQUESTS.value

    def hidden(self) -> Mapping[Need, str]:
        """What the shape of the engine has more than the invariants know, or less."""
        kept = all(group.kind == "full" for group in self.cfg.groups)
        less = {Need.LEFT_BEHIND: "it has only full attention"} if kept else {}
        return {**self.seen.shape.hidden, **less}

    def questions(self) -> Iterator[Question]:
        """All requests at once."""
        if touched := self.seen.touched_requests():
            yield self.question(self.seen.touched_part(), times=len(touched))
