"""These parts show requests with steps in flight, and those of a step whose load has failed."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.live import adapt
from kvproof.model.config import Group
from kvproof.model.events import Complete
from kvproof.model.memory import first_seen
from kvproof.model.needs import Need
from kvproof.model.state import COUNTS, Engine, Flight, Request
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest

UNKNOWN = "requests with steps in flight, because results did not come in the order of the steps"
OLDER = "requests with steps in flight, because this vLLM does not count stale outputs"


class Flying(Part):
    """A part of which the steps in flight must be known."""

    def touched(self) -> Iterator[WatchedRequest]:
        """Return the requests that the event touches, if it is known what is in flight for them."""
        for watched in self.seen.touched_requests():
            if not self.seen.flights.known:
                self.seen.unjudged[UNKNOWN] += 1
            elif adapt.stale_output(watched.live) is None:
                self.seen.unjudged[OLDER] += 1
            else:
                yield watched


class Placeholders(Flying):
    """The requests that an event touches, with their placeholders and their steps in flight."""

    view = Views.PLACEHOLDERS

    def hidden(self) -> Mapping[Need, str]:
        """Hide placeholders unless scheduling is async and samples one token at a time."""
        scheduler = self.scheduler
        classes = {each.__name__ for each in type(scheduler).__mro__}
        why = ""
        if "AsyncScheduler" not in classes:
            why = "its steps do not overlap"
            if self.cfg.overlaps:
                why = "its steps overlap without placeholders"
        if getattr(scheduler, "num_sampled_tokens_per_step", 1) != 1:
            why = "its steps sample no token"
        return {Need.SAMPLES_IN_FLIGHT: why} if why else {}

    def questions(self) -> Iterator[Question]:
        """Ask about all requests at once."""
        requests, steps, pending, step = [], [], [], []
        for watched in self.touched():
            live, name = watched.live, watched.live.request_id
            flights = [flight for flight, _ in self.seen.flights.of(live)]
            requests.append(self.seen.request(watched))
            if self.cfg.overlaps:
                steps += [(each,) for each in flights]
            elif flights:
                step.append((name, flights[0].tokens))
            if live.num_output_placeholders and not live.is_finished():
                pending.append((name, live.num_output_placeholders))
        if requests:
            engine = Engine(
                self.cfg.name,
                (),
                (),
                requests=tuple(requests),
                step=tuple(step) or None,
                steps=tuple(steps),
                pending=tuple(pending),
            )
            yield self.question(engine, times=len(requests))


class Settled(Flying):
    """Each request that has lost blocks, with its steps in flight and the blocks that they use.

    A connector that fills blocks beside the steps makes the engine keep also the blocks of ended
    requests.
    """

    view = Views.SETTLED

    def hidden(self) -> Mapping[Need, str]:
        """Hide blocks in flight where steps do not overlap: then nothing is in flight when blocks
        are freed. A test may build a scheduler whose steps overlap although its config says
        otherwise."""
        if not self.cfg.overlaps:
            return {Need.BLOCKS_IN_FLIGHT: "its steps do not overlap"}
        if getattr(self.scheduler.vllm_config, "max_concurrent_batches", 2) < 2:
            return {Need.BLOCKS_IN_FLIGHT: "its config says that its steps do not overlap"}
        return {}

    def questions(self) -> Iterator[Question]:
        """Ask about one request after the other."""
        transfer = self.scheduler.vllm_config.kv_transfer_config
        receives = transfer is not None and bool(transfer.is_kv_consumer)
        for watched in self.losers():
            live, name = watched.live, watched.live.request_id
            before = self.seen.event.tables[name]
            steps = tuple(
                (flight._replace(blocks=self._used(before, start, start + flight.tokens)),)
                for flight, start in self.seen.flights.of(live)
                if flight.fate == COUNTS or receives
            )
            if steps:
                yield self.question(self._engine(watched, steps))

    def losers(self) -> Iterator[WatchedRequest]:
        """Return the requests that have lost blocks. Those that ended are not watched any more."""
        lost = self.seen.event.tables
        ended = (each for name, each in self.seen.gone.items() if name in lost)
        held = (each for each in self.seen.touched_requests() if each.live.request_id in lost)
        for watched in (*held, *ended):
            if not self.seen.flights.known:
                self.seen.unjudged[UNKNOWN] += 1
            elif adapt.stale_output(watched.live) is not None:
                yield watched

    def _engine(self, watched: WatchedRequest, steps: tuple[tuple[Flight], ...]) -> Engine:
        name = watched.live.request_id
        used = {block for (flight,) in steps for block in flight.blocks}
        held = tuple(
            tuple(block.block_id for block in table if block.block_id in used)
            for table in watched.tables
        )
        request = Request(name, "", "", 0, 0, tables=held)
        deferred = tuple(block for block in self.slices.deferred if block in used)
        return Engine(
            self.cfg.name, (), (), requests=(request,), steps=steps, deferred=((1, deferred),)
        )

    def _used(self, tables: list[list[Any]], start: int, end: int) -> tuple[int, ...]:
        """Return the blocks that a step uses that computes the tokens from `start` to `end`."""
        used: set[int] = set()
        for table, group in zip(tables, self.cfg.groups, strict=True):
            columns = self._columns(group, start, end)
            used.update(table[c].block_id for c in columns if c < len(table))
        return tuple(sorted(used - {0}))

    def _columns(self, group: Group, start: int, end: int) -> Iterator[int]:
        size = group.block_size
        if group.attention:
            first = first_seen(start, group.window) if group.window else 0
            yield from range(first // size, (end - 1) // size + 1)
        elif self.cfg.drafts:
            last = (end - 1) // size + 1 + self.cfg.drafts
            yield from range(max(start - 1, 0) // size, last)
        else:
            yield from {max(start - 1, 0) // size, (end - 1) // size}


class FailedLoads(Flying):
    """Each request of a step of whose loaded blocks some were not filled, before and after the
    result of the step."""

    view = Views.FAILED_LOADS

    def questions(self) -> Iterator[Question]:
        """Ask about one request after the other."""
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
