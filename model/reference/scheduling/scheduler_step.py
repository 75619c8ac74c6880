"""The current scheduler step: its choices so far, and the engine after them.

Source: `Scheduler.schedule` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.errors import NoPlace, NoRoom
from kvproof.model.events import Choice, Lists
from kvproof.model.reference import in_flight
from kvproof.model.reference.blocks import allocation, pool
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import (
    ABORTED,
    MISQUEUED,
    PAUSED,
    RUNNING,
    SENDING,
    Death,
    Engine,
    Request,
    State,
)
from kvproof.model.step import Admission, Allocation


def rank(priority: int, arrival: int) -> tuple[int, ...]:
    """The sort key with the policy `priority`: the lowest number first, then the earliest arrival.
    The last request in this order is preempted first."""
    return priority, arrival


def takes_a_place(status: str) -> bool:
    """Whether a request of this status counts against `max_requests`: a running request, a paused
    session, or a misqueued request. Other waiting requests do not count, because they may wait
    forever, and then no other request would be admitted (vllm#53130)."""
    return status in (RUNNING, PAUSED, MISQUEUED)


class SchedulerStep:
    """The current scheduler step. The functions in `admission`, `computing` and `preemption` make
    choices in it. `shared` says whether the engine had more than one request at its beginning.
    `kept_free` is the number of blocks that the next choice must leave free."""

    def __init__(self, cluster: config.Cluster, state: State, name: str) -> None:
        self.cluster = cluster
        self.cfg = cluster.engine(name)
        self.state = state
        self.engine = self.begun = state.engine(name)
        self.budget = self.cfg.chunk_tokens
        self.shared = sum(r.status not in (SENDING, ABORTED) for r in self.begun.requests) > 1
        self.kept_free = 0
        self.chose: list[Choice] = []
        self.scheduled: list[tuple[str, int]] = []
        self.admissions: list[Admission] = []
        self.allocations: list[Allocation] = []
        self.pending: tuple[str, Hit] | None = None
        self.to_bring: Lists = ()
        self.brought: list[str] = []

    def rank(self, name: str) -> tuple[int, ...]:
        """The place of a request in the order of priority."""
        arrival = [r.id for r in self.engine.requests].index(name)
        return rank(self.cluster.job(name).priority, arrival)

    def refuse_more_than_run(self, request: Request) -> None:
        """Raise NotAllowed where `max_requests` requests run already. A load also counts at its
        start."""
        running = sum(map(takes_a_place, (r.status for r in self.engine.requests)))
        if request.status != RUNNING and running >= self.cfg.max_requests:
            limit = self.cfg.max_requests
            raise NoPlace(f"{request.id} cannot start: max_requests ({limit}) reached")

    def without_skipped(self, request: Request) -> tuple[Engine, Request]:
        """The engine and a request without the blocks that its settled tokens no longer need."""
        settled = in_flight.settled(self.engine, request)
        return allocation.release_skipped(self.cfg, self.engine, request, computed=settled)

    def take_blocks(
        self, request: Request, hit: Hit | None, end: int, recorded: Lists
    ) -> allocation.Grown:
        """Take blocks for `end` tokens, all or nothing; the recorded blocks, if there are any. The
        engine dies where the pool has fewer blocks than the request takes."""
        free = len(self.engine.free)
        needed = allocation.predicted(self.cfg, self.engine, request, hit, end)
        if needed > free - self.kept_free:
            text = f"{request.id} needs {needed} blocks but {free} are free"
            raise NoRoom(text, needed, free - self.kept_free)
        try:
            grown = allocation.follow(self.cfg, self.engine, request, hit, end, recorded)
        except pool.Exhausted as error:
            grown = allocation.Grown(self.engine._replace(dead=Death(message=str(error))), request)
        if grown.engine.dead and not self.engine.dead:
            self.die(grown.engine.dead)
            return grown
        self.engine = grown.engine
        taken = free - len(grown.engine.free)
        self.allocations.append(Allocation(grown.engine.name, request.id, needed, taken))
        return grown

    def die(self, why: Death) -> None:
        """The scheduler raised an exception: the engine is dead, and the step does not reach the
        worker."""
        self.engine = self.begun._replace(dead=why)
        self.scheduled, self.brought, self.admissions, self.allocations = [], [], [], []
        self.pending = None
