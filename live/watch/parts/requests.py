"""Requests whose blocks have changed."""

from collections.abc import Iterator, Mapping

from kvproof.live.watch.parts.part import Part, Question


class Requests(Part):
    """Each request that an event touches, without the tokens at its beginning that are settled."""

    judges = (
        "table_fits_its_tokens",
        "counter_counts_only_cached",
        "no_more_is_held_than_is_read",
    )

    def skipped(self) -> Mapping[str, str]:
        """What the shape of the engine has more than the invariants know."""
        return self.seen.shape.skipped

    def questions(self) -> Iterator[Question]:
        """One request after the other."""
        for watched in self.seen.touched_requests():
            yield self.question(self.seen.request(watched))
