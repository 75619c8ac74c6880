"""This part shows the blocks that the worker erases before a step."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.live import adapt
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Schedule
from kvproof.model.needs import Need
from kvproof.model.numbered import Some
from kvproof.model.phases import Phase
from kvproof.model.state import LOADING, Block, Engine, Key, Request, Transfer
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest


class Zeroed(Part):
    """The erased blocks of a step, and those that it takes, with all requests that hold them."""

    view = Views.ERASED

    def hidden(self) -> Mapping[Need, str]:
        """Hide erased blocks where the worker erases none, as in most engines."""
        needed = getattr(self.scheduler, "needs_kv_cache_zeroing", self.cfg.has_state)
        if not needed:
            return dict.fromkeys(self.view.shows, "its worker erases no blocks")
        return {} if self.cfg.has_state else {Need.ERASED_FOR_STATES: "it has no states"}

    def questions(self) -> Iterator[Question]:
        """Ask about all blocks of a step at once."""
        event = self.seen.event
        zeroed = adapt.zeroed(event.result) if event.what == "schedule" else None
        if zeroed is None or not (zeroed or event.taken):
            return
        names = {name: None for block in zeroed for name in self.slices.holders.of(block)}
        names |= dict.fromkeys(event.taken)
        held = [self.seen.requests[name] for name in names if name in self.seen.requests]
        known: Any = Some({block: Block(1, self._key(block)) for block in zeroed})
        cached: Any = Some({block: Block(1, self._key_before(block)) for block in zeroed})
        before = tuple(each for each in map(self._before, held) if each is not None)
        after = tuple(self._request(each, each.tables) for each in held)
        loads = tuple(
            Transfer(each.live.request_id, Phase.READING, 0, (), each.loads)
            for each in held
            if any(each.loads) and self.slices.status(each.live) == LOADING
        )
        yield self.question(
            Engine(self.cfg.name, known, (), requests=after),
            before=Engine(self.cfg.name, cached, (), requests=before),
            event=Schedule(self.cfg.name, tuple(self._choices())),
            effects=Effects(zeroed=zeroed),
            transfers=loads,
        )

    def _choices(self) -> Iterator[Choice]:
        """Return what each request takes, by group: for the tokens of its connector, and for
        others."""
        admitted = {each.request for each in self.seen.event.choices if isinstance(each, Admit)}
        for name, taken in self.seen.event.taken.items():
            watched = self.seen.requests.get(name)
            if watched is None:
                continue
            brought = watched.loads if name in admitted else ((),) * len(watched.tables)
            yield Admit(name, watched.hit, watched.external, taken=brought)
            lists = (
                tuple(b.block_id for b in table if b.block_id in taken and b.block_id not in loads)
                for table, loads in zip(watched.tables, brought, strict=True)
            )
            yield Compute(name, 1, taken=tuple(lists))

    def _request(self, watched: WatchedRequest, tables: list[list[Any]]) -> Request:
        live = watched.live
        ids = tuple(tuple(block.block_id for block in table) for table in tables)
        return Request(
            live.request_id,
            self.slices.status(live),
            "",
            0,
            0,
            tables=ids if any(ids) else (),
            computed=live.num_computed_tokens,
            hit=watched.hit,
            external=watched.external,
        )

    def _before(self, watched: WatchedRequest) -> Request | None:
        """Return a request as it was before the step, without the blocks that it takes; None if it
        is new, or was loaded: then it may have held blocks without tokens."""
        event, name = self.seen.event, watched.live.request_id
        if any(isinstance(c, Admit) and c.request == name for c in event.choices):
            return None
        taken = event.taken.get(name, ())
        tables = [
            [block for block in table if block.block_id not in taken] for table in watched.tables
        ]
        request = self._request(watched, tables)
        scheduled = event.result.num_scheduled_tokens.get(name, 0)
        loaded = any(isinstance(c, FinishLoad) and c.request == name for c in event.choices)
        status = LOADING if loaded else request.status
        return request._replace(status=status, computed=request.computed - scheduled)

    def _key(self, block: int) -> Key | None:
        keys = self.slices.mapped.of(block)
        return (0, bytes(keys[0]).hex()[:12]) if keys else None

    def _key_before(self, block: int) -> Key | None:
        return None if block in self.seen.mapped_now else self._key(block)
