"""Blocks that enter the prefix cache."""

from collections.abc import Iterator

from kvproof.model.finding import Finding
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views

UNSEEN = "cache entries whose content was never seen written"


class CachedBlocks(Part):
    """The blocks that an event caches, with their content and the prefixes that their keys name."""

    view = Views.CACHED.value

    def questions(self) -> Iterator[Question]:
        """All blocks at once."""
        engine, looked, unseen = self.slices.of_content(self.seen.named.values())
        unseen += self.seen.nameless
        if unseen:
            self.seen.unjudged[UNSEEN] += unseen
        if looked:
            yield self.question(engine, times=looked)

    def found(self, finding: Finding) -> None:
        """All that reads the block would be found wrong, too."""
        self.seen.contents.forget(finding.about.block or 0)
