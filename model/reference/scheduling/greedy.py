"""A greedy scheduler, for the explorer and for sampling the model. A recorded run may choose
differently."""

from collections.abc import Sequence
from typing import Any

from kvproof.model import capacity, group_needs
from kvproof.model.errors import NoRoom, NotAllowed
from kvproof.model.events import Admit, Compute, FinishLoad, Preempt
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.scheduling.admission import admit, finish_load
from kvproof.model.reference.scheduling.computing import aligned_chunk, computable_tokens, compute
from kvproof.model.reference.scheduling.preemption import preempt
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.reference.transfers.offers import best_admission
from kvproof.model.state import (
    FAILED,
    LOADED,
    LOADING,
    NULL,
    PREEMPTED,
    WAITING,
    Engine,
    Request,
)

STATES_AT_ONCE = 2
"""The states that a request needs at the same time: an older one, from a hit or of its last chunk,
and the one that it computes."""


class Greedy(SchedulerStep):
    """One scheduler step that makes its own choices. `refused` is why the request that was tried
    last is not scheduled."""

    refused: NotAllowed | None = None

    def choose(self) -> None:
        """Schedule running requests first, then waiting requests while they fit, each with as many
        tokens as possible. Waiting requests with blocks come first, then preempted requests, then
        the others, in the order of arrival. With the policy `priority`, preempted requests do not
        come before others."""
        if serve_running(self, self.engine.running):
            self._admit_waiting()

    def _wanted(self, name: str, start: int, hit: Hit | None) -> int:
        request = self.engine.request(name)
        return aligned_chunk(
            self, request, start, computable_tokens(self, request, start, False), hit
        )

    def run_on(self, name: str) -> bool:
        """Schedule a running request, and preempt the last requests where needed. Returns False if
        any request was preempted."""
        undisturbed = True
        while name in self.engine.running:
            tokens = self._wanted(name, self.engine.request(name).computed, None)
            if not tokens:
                break
            before = self.engine
            try:
                compute(self, Compute(name, tokens))
                break
            except NotAllowed:
                self.engine = before
            victim = self._last()
            if in_flight.must_wait(self.cfg, self.engine, victim):
                break
            undisturbed = False
            preempt(self, Preempt(victim, name))
        return undisturbed

    def _last(self) -> str:
        """The running request to preempt: the one that started last, or the last by priority."""
        if self.cfg.by_priority:
            return max(self.engine.running, key=self.rank)
        return next(r for r in reversed(self.engine.running) if r not in dict(self.scheduled))

    def _admit_waiting(self) -> None:
        for request in self.engine.requests:
            if request.status in (LOADED, FAILED):
                finish_load(self, FinishLoad(request.id))
        held = [r for r in self.engine.requests if r.status in (WAITING, PREEMPTED)]
        serve_waiting(self, sorted(held, key=self.place))

    def place(self, request: Request) -> tuple[Any, ...]:
        """The place of a waiting request in the order of service, as a sort key."""
        if self.cfg.by_priority:
            return without_blocks(request), self.rank(request.id)
        return without_blocks(request), request.status != PREEMPTED

    def serve(self, request: Request) -> bool:
        """Try to schedule a waiting request in this step. Returns whether it is scheduled."""
        return bool(self.budget) and not self.engine.dead and self._try(request.id)

    def refusal(self, name: str) -> NotAllowed | None:
        """Why a step that tries this request alone does not schedule it; None if it does."""
        return None if self._try(name) else self.refused

    def reclaim(self, needy: str) -> None:
        """No request runs: preempt waiting sessions until the first waiting request (`needy`)
        fits."""
        order = list(self.engine.requests)
        if self.cfg.by_priority:
            order.sort(key=lambda r: self.rank(r.id))
        for victim in reversed(order):
            before = self.engine
            if victim.id == needy or not sessions.gives_way(self.cluster, victim):
                continue
            try:
                preempt(self, Preempt(victim.id, needy))
            except NotAllowed:
                self.engine = before
                return
            if self._try(needy):
                return

    def leaves_room(self, before: Engine, name: str) -> bool:
        """Check that a load leaves the blocks that earlier started requests still need; raises
        NotAllowed where it does not. A waiting request with blocks cannot be preempted, so several
        of them could wait for each other."""
        if self.engine.dead:
            return True
        ahead = self.cfg.lookahead
        promised = sum(self.still_needed(r, ahead) for r in before.requests if self.has_begun(r))
        needed = promised + self.still_needed(self.engine.request(name), ahead)
        free = len(self.engine.free)
        if needed > free:
            taken = len(before.free) - free
            text = f"{name} would take blocks that other requests need to finish"
            raise NoRoom(text, needed + taken, free + taken)
        return True

    def has_begun(self, request: Request) -> bool:
        """Whether a request holds blocks and has not sampled its first token."""
        loads = request.status in (LOADING, LOADED, FAILED)
        return bool(request.tables) and (request.computed < len(request.tokens) or loads)

    def still_needed(self, request: Request, ahead: int) -> int:
        """The number of further blocks that a request needs for its tokens and `ahead` slots after
        them."""
        needed = 0
        for group, table in zip(self.cfg.groups, request.tables, strict=True):
            blocks = group_needs.grown(self.cfg, group, table, len(request.tokens), ahead)
            held = len(table) - table.count(NULL)
            if group.aligned:  # its next state takes the place of an older one
                blocks = min(blocks, max(STATES_AT_ONCE + self.cfg.drafts - held, 0))
            needed += capacity.at_most(self.cfg, group, blocks, held)
        return needed

    def _try(self, name: str) -> bool:
        """Admit and schedule a waiting request if it fits; otherwise change nothing."""
        saved = (self.engine, self.state, self.budget)
        logs: tuple[list[Any], ...] = (
            *(self.chose, self.scheduled, self.brought),
            *(self.admissions, self.allocations),
        )
        lengths = [len(log) for log in logs]
        self.kept_free = kept_at_admission(self.cfg.watermark_blocks, bool(self.engine.running))
        try:
            request = self.engine.request(name)
            if not request.tables:
                hit, external = best_admission(
                    self.cluster, self.cfg, self.state.with_engine(self.engine), request
                )
                admit(self, Admit(name, hit, external))
                if external and not self.cfg.store:
                    return self.leaves_room(saved[0], name)
            pending = self.pending[1] if self.pending else None
            request = self.engine.request(name)
            start = pending.tokens + request.external if pending else request.computed
            tokens = self._wanted(name, start, pending)
            compute(self, Compute(name, tokens))
            self._leaves_room_for_prompt(name)
        except NotAllowed as error:
            self.refused = error
            self.engine, self.state, self.budget = saved
            for log, length in zip(logs, lengths, strict=True):
                del log[length:]
            self.pending = None
            return False
        finally:
            self.kept_free = 0
        return True

    def _leaves_room_for_prompt(self, name: str) -> None:
        """Where the engine reserves whole prompts, raise NotAllowed if a request has got its first
        chunk and the rest of its tokens does not fit. Alone on the engine it does fit, because
        otherwise it would have been refused."""
        if not self.cfg.reserve_whole_prompt or self.engine.dead:
            return
        if not any(each.tables for each in self.engine.requests if each.id != name):
            return
        needed = self.still_needed(self.engine.request(name), 0)
        free = len(self.engine.free) - self.kept_free
        if needed > free:
            text = f"{name} needs {needed} more blocks for its whole prompt"
            taken = len(self.begun.free) - len(self.engine.free)
            raise NoRoom(text, needed + taken, free + taken)


def without_blocks(request: Request) -> bool:
    """Whether a waiting request holds no blocks. Those that hold blocks are served first: they
    cannot be preempted, and others need their blocks."""
    return not request.tables


def kept_at_admission(watermark: int, others_run: bool) -> int:
    """The blocks that an admission leaves free: the watermark, where another request runs."""
    return watermark if others_run else 0


def serve_running(work: Greedy, running: Sequence[str]) -> bool:
    """Schedule the running requests, in this order, and preempt others where needed. Returns False
    if any request was preempted."""
    undisturbed = True
    for name in running:
        if name not in work.engine.running or not work.budget or work.engine.dead:
            continue
        undisturbed &= work.run_on(name)
        if name not in work.engine.running:
            break  # it was preempted itself, so later requests do not fit either
    return undisturbed


def serve_waiting(work: Greedy, waiting: Sequence[Request]) -> None:
    """Schedule waiting requests, in this order, while they fit. A request that cannot be scheduled
    because it waits for output from before its preemption does not hold up the requests behind it.
    Where no request runs and none fits, preempt waiting sessions for the first request."""
    flights = work.engine.flights
    waiting = [each for each in waiting if not in_flight.awaits_output(flights(each.id))]
    for request in waiting:
        if not work.serve(request):
            break
    if waiting and not work.chose and not work.engine.running:
        work.reclaim(waiting[0].id)
