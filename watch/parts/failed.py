"""Requests whose load from a store failed in a step."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.events import Complete
from kvproof.model.state import Engine, Request
from kvproof.watch.parts.in_flight import Flying
from kvproof.watch.parts.part import Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest


class FailedLoads(Flying):
    """Each request of a step of whose loaded blocks some were not filled, before and after the
    result of the step."""

    view = Views.FAILED_LOADS.value

    def questions(self) -> Iterator[Question]:
        """One request after the other."""
        for watched, length in self.seen.event.spoiled:
            live, name = watched.live, watched.live.request_id
            if not self.seen.flights.known:
                continue
            watched.know()
            before = self._engine(watched, length)
            goes_on = name in self.scheduler.requests and not live.is_finished()
            after = Engine(self.cfg.name, (), ())
            if goes_on:
                flights: Any = tuple((flight,) for flight, _ in self.seen.flights.of(live))
                after = self._engine(watched, live.num_output_tokens)._replace(steps=flights)
            event = Complete(self.cfg.name, failed=name)
            yield self.question(after, before=before, event=event)

    def _engine(self, watched: WatchedRequest, length: int) -> Engine:
        live = watched.live
        output = watched.tokens.text(live.num_prompt_tokens, live.num_prompt_tokens + length)
        request = Request(live.request_id, "", "", 0, 0, output=output)
        return Engine(self.cfg.name, (), (), requests=(request,))
