"""Requests whose blocks have changed."""

from collections.abc import Iterator, Mapping

from kvproof.live.watch.parts.part import Part, Question


class Requests(Part):
    """The requests that an event touches, without the tokens at their beginning that are
    settled."""

    judges = (
        "table_fits_its_tokens",
        "counter_counts_only_cached",
        "no_more_is_held_than_is_read",
    )

    def skipped(self) -> Mapping[str, str]:
        """What the shape of the engine has more than the invariants know, or less."""
        kept = all(group.kind == "full" for group in self.cfg.groups)
        less = {"no_more_is_held_than_is_read": "it has only full attention"} if kept else {}
        return {**self.seen.shape.skipped, **less}

    def questions(self) -> Iterator[Question]:
        """All requests at once."""
        if touched := self.seen.touched_requests():
            yield self.question(self.seen.touched_part(), times=len(touched))
