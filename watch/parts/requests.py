"""These parts show requests that an event touches: their blocks, their places in the queues, and
their reads."""

from collections.abc import Iterator, Mapping

from kvproof.model.needs import Need
from kvproof.model.state import Engine
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class TouchedRequests(Part):
    """The requests that an event touches, without the tokens at their beginning that are
    settled."""

    view = Views.REQUESTS

    def hidden(self) -> Mapping[Need, str]:
        """Hide what this engine has beyond what the invariants know, and what it does not have."""
        kept = all(group.kind == "full" for group in self.cfg.groups)
        less = {Need.LEFT_BEHIND: "it has only full attention"} if kept else {}
        return {**self.seen.shape.hidden, **less}

    def questions(self) -> Iterator[Question]:
        """Ask about all requests at once."""
        if touched := self.seen.touched_requests():
            yield self.question(self.seen.touched_part(), times=len(touched))


class TouchedQueues(Part):
    """The requests that an event touches, with their places in the queues."""

    view = Views.QUEUES

    def questions(self) -> Iterator[Question]:
        """Ask about all requests at once, and about names in the running queue that are no
        requests."""
        touched = self.seen.touched_requests()
        if touched:
            yield self.question(self.seen.touched_part(), times=len(touched))
        known = self.scheduler.requests
        running = self.scheduler.running
        unknown = tuple([each.request_id for each in running if each.request_id not in known])
        if unknown:
            yield self.question(Engine(self.cfg.name, (), (), running=unknown))


UNSEEN = "blocks that a request reads, whose content was never seen written"


class Reads(Part):
    """What each request reads and does not find in the step that it begins with, through the block
    tables that the worker gets. Most requests find everything."""

    view = Views.READS

    def hidden(self) -> Mapping[Need, str]:
        """Hide reads of states, or of tokens, where no group has any."""
        hidden = {}
        if not self.cfg.has_state:
            hidden[Need.STATE_READS] = "it has no states"
        if not any(group.attention for group in self.cfg.groups):
            hidden[Need.TOKEN_READS] = "it has only states"
        return hidden

    def questions(self) -> Iterator[Question]:
        """Ask about one request that begins after the other."""
        for started in self.seen.started:
            if started.watched.hit + started.watched.external:
                yield self.question(effects=Effects(reads=tuple(started.reads)))
        unseen, self.slices.unseen = self.slices.unseen, 0
        if unseen:
            self.seen.unjudged[UNSEEN] += unseen
