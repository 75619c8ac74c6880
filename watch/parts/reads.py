"""What a request with a hit or a load reads when it begins."""

from collections.abc import Iterator, Mapping

from kvproof.model.needs import Need
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views

UNSEEN = "blocks that a request reads, whose content was never seen written"


class Reads(Part):
    """What each request reads and does not find in the step that it begins with, through the block
    tables that the worker gets. It is nothing for most."""

    view = Views.READS.value

    def hidden(self) -> Mapping[Need, str]:
        """A request reads states, or tokens, or both."""
        hidden = {}
        if not self.cfg.has_state:
            hidden[Need.STATE_READS] = "it has no states"
        if not any(group.attention for group in self.cfg.groups):
            hidden[Need.TOKEN_READS] = "it has only states"
        return hidden

    def questions(self) -> Iterator[Question]:
        """One request that begins after the other."""
        for begun in self.seen.begun:
            if begun.watched.hit + begun.watched.external:
                yield self.question(effects=Effects(reads=tuple(begun.reads)))
        unseen, self.slices.unseen = self.slices.unseen, 0
        if unseen:
            self.seen.unjudged[UNSEEN] += unseen
