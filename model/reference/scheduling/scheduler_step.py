"""One scheduler step in the making: what it has chosen so far, and the engine that this has made.

Source: `Scheduler.schedule` of vLLM V1.
"""

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Choice, Lists
from kvproof.model.reference.blocks import allocation, growth, pool
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.rules import Rules
from kvproof.model.state import RUNNING, Engine, Request, State
from kvproof.model.step import Admission, Allocation


class SchedulerStep:
    """One scheduler step in the making. Choices are functions of it: see `admission`, `computing`
    and `preemption`."""

    def __init__(self, cluster: config.Cluster, rules: Rules, state: State, name: str) -> None:
        self.cluster = cluster
        self.cfg = cluster.engine(name)
        self.rules = rules
        self.state = state
        self.engine = self.begun = state.engine(name)
        self.budget = self.cfg.chunk_tokens
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
        return self.rules.rank(self.cluster.job(name).priority, arrival)

    def refuse_more_than_run(self, request: Request) -> None:
        """No more than `max_requests` run at a time; a load needs a place to begin."""
        running = sum(map(self.rules.takes_a_place, (r.status for r in self.engine.requests)))
        if request.status != RUNNING and running >= self.cfg.max_requests:
            raise NotAllowed(f"{request.id} is to run and {running} requests run already")

    def without_skipped(self, request: Request) -> tuple[Engine, Request]:
        """The engine and a request without the blocks that its ended steps have left behind."""
        settled = in_flight.settled(self.engine, request, self.rules)
        return allocation.release_skipped(self.cfg, self.engine, request, self.rules, settled)

    def take_blocks(
        self, request: Request, hit: Hit | None, end: int, recorded: Lists
    ) -> growth.Grown:
        """Blocks up to `end` tokens, all or nothing; those recorded, if any are. Where the pool has
        fewer than were predicted the engine dies."""
        free = len(self.engine.free)
        needed = allocation.predicted(self.cfg, self.engine, request, hit, end, self.rules)
        if needed > free:
            raise NotAllowed(f"{request.id} needs {needed} blocks and {free} are free")
        try:
            grown = growth.follow(self.cfg, self.engine, request, hit, end, self.rules, recorded)
        except pool.Exhausted as error:
            grown = growth.Grown(self.engine._replace(dead=str(error)), request)
        if grown.engine.dead and not self.engine.dead:
            self.die(grown.engine.dead)
            return grown
        self.engine = grown.engine
        taken = free - len(grown.engine.free)
        self.allocations.append(Allocation(grown.engine.name, request.id, needed, taken))
        return grown

    def die(self, why: str) -> None:
        """The scheduler raised: the engine is dead, and nothing of the step reaches the worker."""
        self.engine = self.begun._replace(dead=why)
        self.scheduled, self.brought, self.admissions, self.allocations = [], [], [], []
        self.pending = None
