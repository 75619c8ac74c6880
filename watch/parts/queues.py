"""The queues of the scheduler."""

from collections.abc import Iterator

from kvproof.model.state import Engine
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class TouchedQueues(Part):
    """The requests that an event touches, with their places in the queues."""

    view = Views.QUEUES.value

    def questions(self) -> Iterator[Question]:
        """All requests at once, and what is in the running queue without a request."""
        touched = self.seen.touched_requests()
        if touched:
            yield self.question(self.seen.touched_part(), times=len(touched))
        known = self.scheduler.requests
        running = self.scheduler.running
        unknown = tuple([each.request_id for each in running if each.request_id not in known])
        if unknown:
            yield self.question(Engine(self.cfg.name, (), (), running=unknown))
