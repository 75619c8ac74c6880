"""Blocks that enter the prefix cache."""

from collections.abc import Iterator

from kvproof.live.watch.parts.part import Part, Question
from kvproof.model.finding import Finding

UNSEEN = "cache entries whose content was never seen written"


class CachedBlocks(Part):
    """Each block that an event caches, with its content and the prefixes that its keys name."""

    judges = ("cached_block_holds_its_key", "cached_key_can_be_hit")

    def questions(self) -> Iterator[Question]:
        """One block after the other."""
        for block in sorted(self.seen.mapped_now):
            engine = self.slices.of_content(block)
            if engine is not None:
                yield self.question(engine)
            elif self.slices.mapped.of(block):
                self.seen.unjudged[UNSEEN] += 1

    def found(self, finding: Finding) -> None:
        """All that reads the block would be found wrong, too."""
        self.seen.contents.forget(finding.about.block or 0)
