"""This module observes one scheduler: it notes what each event touches, and lets that be judged.

Nothing of vLLM is changed: its methods are called as they are, and their results are returned.
"""

import time
from collections.abc import Iterator
from typing import Any

from kvproof.live.observer import view
from kvproof.live.observer.calls import Noting
from kvproof.live.observer.hooks import MISTAKES, Hook, Hooks
from kvproof.watch.calls import Calls
from kvproof.watch.event_notes import EventNotes
from kvproof.watch.judge import Judge
from kvproof.watch.notes import EngineNotes
from kvproof.watch.parts.writes import note_writes
from kvproof.watch.shape import shape
from kvproof.watch.shared_tokens import SharedTokens
from kvproof.watch.tokens import tokens_of
from kvproof.watch.worker import WatchedWorker

STEPS = ("schedule", "update_from_output")
"""The methods in which an exception ends the engine."""

SLICE_BLOCKS = 16
"""The number of blocks in a step."""

IDLE_BLOCKS = 4096
"""The number of blocks when the engine has nothing to run, at most every `IDLE_SECONDS`."""

IDLE_SECONDS = 1.0


class Observer:
    """Watch one scheduler from now on. Raises Unknown where its kind of engine is not known.

    In a test suite (`tested`) a test may build by hand what no event leads to, and may call for an
    exception. Then its engine is not judged any further.
    """

    def __init__(
        self, scheduler: Any, judge: Judge, name: str = "E", *, tested: bool = False
    ) -> None:
        self.scheduler = scheduler
        self.judge = judge
        self.notes = EngineNotes(scheduler, shape(scheduler, name))
        self.cfg = self.notes.cfg
        self.slices = self.notes.slices
        self.contents = self.notes.contents
        self.history = self.notes.history
        self.worker = WatchedWorker(self.slices, self.contents)
        self.between = Between(scheduler, tested=tested)
        self.hooks = Hooks(self._ended, judge.failed, judge.stopped, judge.passed_on, self._begins)
        self.calls = Calls(self.notes, self.worker)
        self.parts = judge.parts(self.notes)
        self.rounds = Rounds(self.cfg.num_blocks)
        self.shared: SharedTokens | None = SharedTokens(self.notes)
        judge.shared = self.shared.found
        self.hooks.off = True  # a part of the hooks would judge a part of what happens
        self._attach()
        self.hooks.off = False

    def _attach(self) -> None:
        scheduler, manager = self.scheduler, self.scheduler.kv_cache_manager
        events: tuple[tuple[Any, str, Hook], ...] = (
            (scheduler, "add_request", self._arrives),
            (scheduler, "schedule", self._schedules),
            (scheduler, "update_from_output", self._completes),
            (scheduler, "finish_requests", self._anything),
            (scheduler, "reset_prefix_cache", self._anything),
            (manager, "evict_blocks", self._anything),
            (manager, "reset_prefix_cache", self._anything),
            (manager, "take_events", self.calls.reports),
        )
        for owner, name, hook in events:
            self.hooks.add(owner, name, hook, event=True)
        if hasattr(scheduler, "_update_request_as_session"):  # older releases have no sessions
            self.hooks.add(scheduler, "_update_request_as_session", self._goes_on)
        self.calls.attach(self.hooks)
        self._watch_map()

    def _watch_map(self) -> None:
        """Watch the hash map. A reset of the cache makes another one, which is empty."""
        self.hooks.forget(self.calls.map)
        self.calls.map = self.slices.pool.cached_block_hash_to_block
        calls = self.calls
        self.hooks.add_short(calls.map, "insert", calls.will_map, calls.has_mapped)
        self.hooks.add_short(calls.map, "pop", calls.will_map, calls.has_unmapped)
        self.notes.event.lost = 0
        if self.shared is not None:
            self.shared.reset()
        self.notes.blocks.update(self.slices.mapped)
        self.slices.mapped.clear()
        self.slices.ends.clear()

    # Events.

    def _begins(self) -> None:
        """Stop if anything has changed between the last event and the one that begins."""
        if why := self.between.changed():
            self.hooks.stop(why)

    def _ended(self, what: str, error: Exception | None) -> None:
        """Judge what an event has touched that is over."""
        self.notes.event.what = what
        self.between.note()
        if error is not None:
            self.history.end(self.notes.event, error)
            if what not in STEPS:  # what it did before that is no part of the next event
                self.notes.refresh_all()
            self.notes.event = EventNotes()
            self._raised(what, error)
            return
        is_step = what == "schedule"
        self.judge.steps += is_step
        self._judge(what)
        self.judge.judged(is_step, self.notes.is_idle and not self.scheduler.finished_req_ids)

    def _judge(self, what: str) -> None:
        if self.slices.pool.cached_block_hash_to_block is not self.calls.map:
            self._watch_map()
        if what != "schedule":  # then it was done before the step was carried out
            self.notes.refresh_all()
        self.history.end(self.notes.event)
        self.slices.deferred = [b for _, blocks in view.deferred(self.scheduler) for b in blocks]
        idle = self.notes.is_idle
        if what == "schedule" or idle:
            self.notes.blocks.update(self.rounds.next(idle=idle))
        self._look_at_shared()
        try:
            self.judge.look(self.notes, self.parts)
        finally:
            self.notes.clear()

    def _look_at_shared(self) -> None:
        """Find out what admitted requests share with earlier ones."""
        if self.shared is not None:
            try:
                self.shared.look()
            except MISTAKES as error:
                self.shared = None
                self.judge.mistake(error, "it says no more why tokens were not hit")

    def _raised(self, what: str, error: Exception) -> None:
        """Report the exception of an event if it ends the engine, as one of a step does. An
        exception that a test does not expect fails the test by itself."""
        if what in STEPS:
            self.hooks.stop(f"{what} raised {type(error).__name__}")
            if not self.between.tested:
                self.judge.died(self.notes, what, error)

    def _anything(self, *args: Any, **named: Any) -> Noting:
        event = self._event(args, named)
        result = yield None
        if not self.hooks.depth:
            event.result = result
            for each in result if isinstance(result, list) else ():
                self.notes.touched[getattr(each, "request_id", "")] = None

    def _event(self, args: tuple[Any, ...] = (), named: dict[str, Any] | None = None) -> EventNotes:
        """Return the event that runs now. It begins with the outermost call."""
        event = self.notes.event
        if not event.started:
            pool = self.slices.pool
            event.started, event.args, event.named = True, args, named or {}
            event.running = list(self.scheduler.running)
            event.free = pool.get_num_free_blocks()
            event.cached = len(pool.cached_block_hash_to_block)
        return event

    def _arrives(self, request: Any, *_: Any, **__: Any) -> Noting:
        if request.num_computed_tokens:
            self.hooks.stop("a request arrived with computed tokens")
        submitted = request.num_prompt_tokens  # a connector may cut off the last one
        yield None
        if self.scheduler.requests.get(request.request_id) is request:
            self.notes.meet(request)
            self.notes.requests[request.request_id].submitted = submitted
            self.history.arrives(request)
        self.notes.touched[request.request_id] = None

    def _goes_on(self, session: Any, *_: Any, **__: Any) -> Noting:
        """Follow a session with its next part, which replaces what was answered last."""
        self.notes.name_inserted()
        yield None
        if session.request_id in self.notes.requests:
            watched = self.notes.requests[session.request_id]
            watched.tokens, watched.submitted = tokens_of(session), session.num_prompt_tokens

    def _schedules(self, *args: Any, **named: Any) -> Noting:
        event = self._event(args, named)
        event.in_step = True
        output = event.result = yield None
        self.history.scheduled(output)
        notes = self.notes
        notes.flights.dispatched(output)
        notes.refresh_all()
        note_writes(notes, notes.touched_requests())
        touched = notes.touched_requests()
        notes.started += self.worker.execute(output, notes.admitted, touched, notes.requests)

    def _completes(self, *args: Any, **named: Any) -> Noting:
        event = self._event(args, named)
        scheduled = args[0] if args else named["scheduler_output"]
        output = args[1] if len(args) > 1 else named["model_runner_output"]
        self.notes.flights.arrived(scheduled)
        event.result = yield None
        self.history.completed(scheduled, output, event.result)
        for watched in self.notes.touched_requests():
            watched.know()
            if any(watched.tables):
                note_writes(self.notes, (watched,))
                self.worker.write_up(watched)


class Between:
    """Notice that a test builds a state by hand. Only events may change which objects an engine
    consists of and, in a test suite (`tested`), its requests and the number of its free blocks; so
    all of these are compared with those at the end of the last event. A connector may be replaced
    by another one: what connectors answer is taken to be right."""

    def __init__(self, scheduler: Any, *, tested: bool) -> None:
        self.scheduler = scheduler
        self.tested = tested
        self.note()

    def note(self) -> None:
        """Remember the engine at the end of an event."""
        self.seen = dict(self._now())

    def changed(self) -> str:
        """Say what has changed since the last event; the answer is empty if nothing has."""
        now = dict(self._now())
        for what in self.seen:
            if self.seen[what] != now[what]:
                return f"{what} changed between two events"
        return ""

    def _now(self) -> Iterator[tuple[str, Any]]:
        scheduler = self.scheduler
        manager = scheduler.kv_cache_manager
        pool = manager.block_pool
        yield "the scheduler's kv_cache_manager", id(manager)
        yield "the manager's block_pool", id(pool)
        yield "whether the scheduler has a connector", scheduler.connector is not None
        if not self.tested:
            return
        known = scheduler.requests.values()
        yield "the known requests", tuple(each.request_id for each in known)
        yield "the running requests", tuple(each.request_id for each in scheduler.running)
        yield "the number of free blocks", pool.get_num_free_blocks()
        for name in ("status", "num_computed_tokens", "num_tokens"):
            yield f"the {name} of a request", tuple(getattr(each, name) for each in known)


class Rounds:
    """Choose blocks to be judged although no event has touched them: some in each step, round the
    whole pool. So every block is judged again and again, and what a step costs does not depend on
    the pool."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.at = 0
        self.idle_at = -IDLE_SECONDS

    def next(self, *, idle: bool) -> list[int]:
        """Return the blocks that are judged after this event."""
        now = time.monotonic() if idle else 0.0
        if idle and now - self.idle_at < IDLE_SECONDS:
            return []
        if idle:
            self.idle_at = now
        count = min(IDLE_BLOCKS if idle else SLICE_BLOCKS, self.blocks)
        begin, self.at = self.at, (self.at + count) % self.blocks
        return [number % self.blocks for number in range(begin, begin + count)]
