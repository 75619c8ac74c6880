"""These parts show what a step schedules, which requests it passes over, and which blocks it
takes."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.live.batch import Batch
from kvproof.model.events import Admit, Compute, FinishLoad, Schedule
from kvproof.model.needs import Need
from kvproof.model.numbered import Counted
from kvproof.model.state import COUNTS, SAMPLED, Engine, Request
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class StepBatch(Part):
    """The batch of a step. A request is left out if it computes no more tokens than are known, or
    than steps in flight may sample: then it is within its limits."""

    view = Views.BATCH

    def hidden(self) -> Mapping[Need, str]:
        """Hide the batch where a step samples in another way."""
        if getattr(self.scheduler, "num_sampled_tokens_per_step", 1) != 1:
            return {Need.BATCH: "its steps sample no token"}
        return {}

    def questions(self) -> Iterator[Question]:
        """Ask about each step that computes something."""
        event = self.seen.event
        tokens = event.result.num_scheduled_tokens if event.what == "schedule" else {}
        if not tokens:
            return
        flights, running = self.seen.flights, self.scheduler.running
        wrong = sum(tokens.values()) > self.cfg.chunk_tokens
        wrong |= len(running) > self.cfg.max_requests
        looks = tokens if wrong else list(self._beyond(tokens))
        if looks and not flights.known and self.cfg.overlaps:
            self.seen.unjudged[IN_FLIGHT] += 1
            return
        known = self.scheduler.requests
        before = Engine(
            self.cfg.name,
            (),
            (),
            requests=tuple(map(self._request, known.values())) if looks else (),
            running=tuple(each.request_id for each in event.running) if wrong else (),
            pending=tuple((name, self._sampled(known[name])) for name in looks),
        )
        after = before
        if wrong:
            after = before._replace(running=tuple(each.request_id for each in running))
        chose = tuple(Compute(name, tokens[name]) for name in looks)
        yield self.question(after, before=before, event=Schedule(self.cfg.name, chose))

    def _beyond(self, tokens: Mapping[str, int]) -> Iterator[str]:
        """Return the requests that may be over a limit of their own."""
        known, drafts = self.scheduler.requests, self.cfg.drafts
        most = self.cfg.long_prefill_tokens or self.cfg.chunk_tokens
        for name, count in tokens.items():
            live = known[name]
            if 0 < count <= most and live.num_computed_tokens <= live.num_tokens:
                continue
            placeholders = live.num_output_placeholders
            end = live.num_tokens + (placeholders - 1 if placeholders else drafts)
            if live.num_computed_tokens > end or not 0 < count <= most:
                yield name

    def _sampled(self, live: Any) -> int:
        """Return the number of tokens that earlier steps in flight sample for a request."""
        earlier = [part for part, _ in self.seen.flights.of(live)][:-1]
        return sum(1 + part.ahead for part in earlier if part.samples and part.fate == COUNTS)

    def _request(self, live: Any) -> Request:
        return Request(
            live.request_id,
            self.slices.status(live),
            "",
            0,
            0,
            output=SAMPLED * live.num_tokens,
            computed=live.num_computed_tokens,
        )


class StepCounts(Part):
    """The computed tokens of the requests of a step: what the output gives the worker, from which
    it takes the positions of the tokens, and what the scheduler counts after the step."""

    view = Views.COUNTS

    def questions(self) -> Iterator[Question]:
        """Ask about each step that computes something, with the requests whose numbers differ."""
        event = self.seen.event
        output = event.result if event.what == "schedule" else None
        if output is None or not output.num_scheduled_tokens:
            return
        tokens, known = output.num_scheduled_tokens, self.scheduler.requests
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        started = [(each.req_id, each.num_computed_tokens) for each in new]
        differ = {
            name: given
            for name, given in (
                *started,
                *zip(cached.req_ids, cached.num_computed_tokens, strict=True),
            )
            if given + tokens[name] != known[name].num_computed_tokens
        }
        yield self.question(
            self._engine({name: known[name].num_computed_tokens for name in differ}),
            before=self._engine(differ),
            event=Schedule(self.cfg.name, tuple(Compute(name, tokens[name]) for name in differ)),
        )

    def _engine(self, computed: Mapping[str, int]) -> Engine:
        status = self.slices.status
        requests = tuple(
            Request(name, status(self.scheduler.requests[name]), "", 0, 0, computed=count)
            for name, count in computed.items()
        )
        return Engine(self.cfg.name, (), (), requests=requests)


class Admissions(Part):
    """The requests that a step admits, or whose load it finishes, as they were before."""

    view = Views.ADMITTED

    def questions(self) -> Iterator[Question]:
        """Ask about all admissions of a step at once."""
        event = self.seen.event
        if event.what != "schedule" or not event.admitted:
            return
        if self.cfg.overlaps and not self.seen.flights.known:
            self.seen.unjudged[IN_FLIGHT] += 1
            return
        first = {each.request: each for each in reversed(event.admitted)}
        before = Engine(
            self.cfg.name,
            (),
            (),
            requests=tuple(Request(each.request, each.status, "", 0, 0) for each in first.values()),
            steps=tuple((part,) for each in first.values() for part in each.flights),
        )
        chose = tuple(each for each in event.choices if isinstance(each, Admit | FinishLoad))
        yield self.question(
            before=before, event=Schedule(self.cfg.name, chose), times=len(event.admitted)
        )


class Watermark(Part):
    """The admissions of a step, and the number of blocks that it leaves free."""

    view = Views.WATERMARK

    def hidden(self) -> Mapping[Need, str]:
        """Hide the watermark where the engine has none, as most do."""
        return {} if self.cfg.watermark_blocks else {Need.WATERMARK: "it has no watermark"}

    def questions(self) -> Iterator[Question]:
        """Ask about all admissions of a step at once."""
        event = self.seen.event
        if event.what != "schedule":
            return
        running = tuple(each.request_id for each in event.running)
        chose = tuple(each for each in event.choices if isinstance(each, Admit | Compute))
        if any(each.request not in running for each in chose):
            free: Any = Counted(self.slices.pool.get_num_free_blocks())
            yield self.question(
                Engine(self.cfg.name, (), free),
                before=Engine(self.cfg.name, (), (), running=running),
                event=Schedule(self.cfg.name, chose),
                effects=Effects(allocations=tuple(self.seen.event.allocations)),
            )


IN_FLIGHT = "steps of which it is not known what earlier steps in flight sample"

TOO_LONG = (
    "steps that schedule nothing while a request is longer than the pool, because vLLM itself "
    "starts no such engine"
)


class EmptyStep(Part):
    """A step that schedules nothing, with all requests."""

    view = Views.PROGRESS

    def hidden(self) -> Mapping[Need, str]:
        """Hide empty steps where a step may wait for something that the invariant does not know."""
        scheduler = self.scheduler
        others = (
            (scheduler.connector, "a request may wait for the connector"),
            (getattr(scheduler, "ec_connector", None), "a request may wait for an encoder"),
            (getattr(scheduler, "use_pp", False), "a request may wait for its turn in a pipeline"),
        )
        why = next((why for other, why in others if other), "")
        return {Need.EMPTY_STEPS: why} if why else {}

    def questions(self) -> Iterator[Question]:
        """Ask about a step that schedules nothing."""
        event, flights = self.seen.event, self.seen.flights
        if event.what != "schedule" or event.result.num_scheduled_tokens or event.choices:
            return
        requests = self.scheduler.requests.values()
        held_up = held_up_from_outside(self.scheduler, event.args, event.named)
        held_up |= any(each.has_encoder_inputs for each in requests)
        if not requests or not flights.known or held_up:
            return
        if any(map(self._too_long, requests)):
            self.seen.unjudged[TOO_LONG] += 1
            return
        some = tuple(
            Request(each.request_id, self.slices.status(each), "", 0, 0) for each in requests
        )
        pool = self.slices.pool
        blocks: Any = Counted(len(pool.blocks))
        free: Any = Counted(event.free)
        steps = tuple(() for _ in flights.steps)
        before = Engine(self.cfg.name, blocks, free, requests=some, steps=steps)
        yield self.question(before, before=before, event=Schedule(self.cfg.name, ()))

    def _too_long(self, live: Any) -> bool:
        """Whether the tokens of a request need more blocks of full attention than there are."""
        sizes = [group.block_size for group in self.cfg.groups if group.kind == "full"]
        needed = sum(-(-int(live.num_tokens) // size) for size in sizes)
        return needed >= self.cfg.num_blocks


def held_up_from_outside(scheduler: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether the engine is paused, or a step may not begin with prompts."""
    pause = getattr(scheduler, "_pause_state", None)
    paused = pause is not None and pause.name != "UNPAUSED"
    return paused or any(args) or any(named.values())


class Places(Part):
    """The places in the worker's batch, as the scheduler's outputs say it: those of the requests
    that a step does not schedule, or all if they are too many."""

    view = Views.PLACES

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.batch = Batch(self.cfg.overlaps)

    def questions(self) -> Iterator[Question]:
        """Ask after each step."""
        event = self.seen.event
        if event.what != "schedule":
            return
        self.batch.update_places(event.result)
        names = places = self.batch.places
        if len(places) <= self.cfg.max_requests:
            names = places.difference(event.result.num_scheduled_tokens)
        some = [self._request(name) for name in sorted(names)]
        yield self.question(
            Engine(self.cfg.name, (), (), requests=tuple(each for each in some if each)),
            effects=Effects(places=tuple(sorted(names))),
            times=len(places),
        )

    def _request(self, name: str) -> Request | None:
        live = self.scheduler.requests.get(name)
        if live is None:
            return None
        held = (each.req_to_blocks.get(name) for each in self.seen.managers)
        last = tuple((table[-1].block_id,) for table in held if table)
        return Request(name, self.slices.status(live), "", 0, 0, tables=last)


class Allocations(Part):
    """All allocations of a step, with what was predicted for them."""

    view = Views.ALLOCATIONS

    def questions(self) -> Iterator[Question]:
        """Ask about all allocations at once."""
        event = self.seen.event
        allocations = tuple(event.allocations)
        if allocations and event.what == "schedule":
            yield self.question(effects=Effects(allocations=allocations), times=len(allocations))
