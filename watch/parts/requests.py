"""These parts show requests that an event touches: their blocks, their places in the queues,
their reads, and the order in which requests of different priority are served."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.live import adapt
from kvproof.model.events import FinishLoad, Preempt, Schedule
from kvproof.model.needs import Need
from kvproof.model.state import NULL, RUNNING, WAITING, Engine, Request
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


SOME = ((NULL,),)
"""Block tables of which it is only known that they have blocks."""

EQUAL = "steps with requests of equal priority that arrived at the same moment"


class Priority(Part):
    """The admissions and preemptions of a step, with the requests that ran and the first of those
    that wait on."""

    view = Views.PRIORITY

    def hidden(self) -> Mapping[Need, str]:
        """Hide the order where something decides it that the invariant does not know."""
        scheduler = self.scheduler
        why = "" if self.cfg.by_priority else "it serves requests in the order of their arrival"
        if adapt.passed_over(scheduler) is None:
            why = why or "this vLLM does not keep the requests that a step passed over"
        return {Need.PRIORITIES: why} if why else {}

    def questions(self) -> Iterator[Question]:
        """Ask about all choices of a step at once."""
        event = self.seen.event
        if event.what != "schedule" or not event.choices:
            return
        running = [each.request_id for each in event.running]
        named = {choice.request for choice in event.choices}
        some = {each.request_id: each for each in event.running}
        known = {**self.scheduler.requests}
        some |= {name: known[name] for name in named if name in known}
        loaded = {each.request for each in event.choices if isinstance(each, FinishLoad)}
        for held in (True, False):
            waits = (r for r in self._waiting() if self._holds(r) == held)
            first = min(waits, key=_rank, default=None)
            if first is not None:
                some[first.request_id] = first
        if len({_rank(each) for each in some.values()}) < len(some):
            self.seen.unjudged[EQUAL] += 1
            return
        before = tuple(
            self._before(each, each.request_id in running, each.request_id in loaded)
            for each in sorted(some.values(), key=lambda each: float(each.arrival_time))
        )
        engine = Engine(self.cfg.name, (), (), requests=before, running=tuple(running))
        yield self.question(before=engine, event=Schedule(self.cfg.name, tuple(event.choices)))

    def _waiting(self) -> Iterator[Any]:
        """Return the requests that still wait and that the step has not passed over for a reason of
        their own. Those that it preempted did not wait before."""
        preempted = {c.request for c in self.seen.event.choices if isinstance(c, Preempt)}
        skipped = adapt.passed_over(self.scheduler) or ()
        for queue in self.slices.queues():
            for live in queue:
                if live not in skipped and live.request_id not in preempted:
                    yield live

    def _holds(self, live: Any) -> bool:
        """Whether a request has blocks."""
        return any(each.req_to_blocks.get(live.request_id) for each in self.seen.managers)

    def _before(self, live: Any, ran: bool, loaded: bool) -> Request:
        """Return a request as it was before the step. It had blocks if it ran, was loaded or has
        lost some since, or if it has some and is no fresh admission."""
        name, event = live.request_id, self.seen.event
        fresh = any(lookup.watched.live is live for lookup in event.lookups)
        held = ran or loaded or name in event.tables or (self._holds(live) and not fresh)
        status = RUNNING if ran else WAITING
        return Request(name, status, "", 0, 0, tables=SOME if held else ())


def _rank(live: Any) -> tuple[int, float]:
    return live.priority, live.arrival_time
