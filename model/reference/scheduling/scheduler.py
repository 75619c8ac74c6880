"""The scheduler: what a step may choose.

`Scheduling` is the work of one step. Each of its methods is one choice with its guard: it raises
`NotAllowed` where the spec forbids it. The order of requests, the size of chunks below the limit
and the refusal to admit are policy: a recorded run may choose otherwise than `greedy` does.

Sources: `Scheduler.schedule`, `_preempt_request` and `_update_waiting_for_remote_kv` of vLLM V1.
"""

from kvproof.model import block_lists, config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.events import (
    BLOCKS,
    Admit,
    Choice,
    Compute,
    FinishLoad,
    Lists,
    Preempt,
    Release,
    bare_choice,
)
from kvproof.model.reference.blocks import coordinator, groups, growth, partial_block_hits, pool
from kvproof.model.reference.features import drafting, follow_up_turns, in_flight, store
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.scheduling import sessions
from kvproof.model.reference.transfers import connector
from kvproof.model.state import (
    FAILED,
    LATE,
    LOADED,
    LOADING,
    PAUSED,
    PREEMPTED,
    RUNNING,
    WAITING,
    Engine,
    Request,
    State,
)
from kvproof.model.step import Admission, Allocation, Effects


class Scheduling:
    """One scheduler step in the making."""

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
        self.pending: tuple[str, coordinator.Hit] | None = None
        self.to_bring: Lists = ()
        self.brought: list[str] = []

    def rank(self, name: str) -> tuple[int, ...]:
        """The place of a request in the order of priority."""
        arrival = [r.id for r in self.engine.requests].index(name)
        return self.rules.rank(self.cluster.job(name).priority, arrival)

    def _refuse_more_than_run(self, request: Request) -> None:
        """No more than `max_requests` run at a time; a load needs a place to begin."""
        running = sum(map(self.rules.takes_a_place, (r.status for r in self.engine.requests)))
        if request.status != RUNNING and running >= self.cfg.max_requests:
            raise NotAllowed(f"{request.id} is to run and {running} requests run already")

    def admit(self, choice: Admit) -> None:
        """A waiting request looks up the cache; with external tokens its load begins."""
        request = self.engine.request(choice.request)
        self._refuse_more_than_run(request)
        if request.status not in (WAITING, PREEMPTED) or request.tables:
            raise NotAllowed(f"{request.id} is {request.status} and is admitted")
        if self.rules.awaits_output(self.engine.flights(request.id)):
            raise NotAllowed(f"{request.id} is admitted before a token of it that is still to come")
        request = connector.asked_again(self.cfg, request, self.rules)
        request = request._replace(external=choice.external)
        connector.check_external(self.cluster, self.state, self.engine, request, choice, self.rules)
        hit = coordinator.look_up(
            self.cfg, self.engine, request.tokens, choice.local_hit, choice.external, self.rules
        )
        self._refuse_states_of_this_step(request, hit)
        self._refuse_copies_of_this_step(request, hit)
        self.admissions.append(
            Admission(
                self.engine.name,
                request.id,
                request.tokens,
                request.route,
                choice.local_hit,
                choice.external,
                self.engine.cached,
            )
        )
        self.engine = self.engine.with_request(request)
        said = choice._replace(hit=(), taken=())
        if choice.external and not self.cfg.store:
            grown = self.rules.begin_load(self, request, hit, choice.taken)
            if grown is not None:
                said = said._replace(hit=grown.hit, taken=grown.from_queue)
        else:
            self.pending, self.to_bring = (request.id, hit), choice.taken
        self.chose.append(said)

    def _refuse_states_of_this_step(self, request: Request, hit: coordinator.Hit) -> None:
        """A state cached in this very step is not written before this step reads."""
        for index, group in enumerate(self.cfg.groups):
            key = (index, request.tokens[: hit.own[index]])
            held = self.engine.blocks_for(key)
            fresh = held and held[0] not in self.begun.blocks_for(key)
            if group.aligned and hit.own[index] and fresh:
                raise NotAllowed(f"{request.id} hits a state that this step is to write")

    def _refuse_copies_of_this_step(self, request: Request, hit: coordinator.Hit) -> None:
        """A block is copied before this step writes: what the step writes is not in the copy."""
        if not self.cfg.partial_block_hits:
            return
        for index, group in enumerate(self.cfg.groups):
            slots = hit.tokens % group.block_size
            if not slots or not group.attention:
                continue
            blocks = groups.hit_blocks(group, index, self.engine, request.tokens, hit.tokens)
            if self.rules.filled_by_step(
                self.cfg, self.engine, self.scheduled, index, blocks[-1], slots
            ):
                raise NotAllowed(f"{request.id} hits inside a block that this step is to fill")

    def load(self, request: Request, hit: coordinator.Hit, recorded: Lists) -> growth.Grown | None:
        """Take blocks for a hit and for the tokens a connector brings, and begin to load. None
        where the engine dies of taking them."""
        end = hit.tokens + request.external
        doomed = self.engine.dead
        grown = self._take(request, hit, end, recorded)
        died = self.engine.dead != doomed
        name = follow_up_turns.incoming(self.cluster, self.cfg.name, request.id)
        self.state = connector.start_load(
            self.cluster, self.state.with_engine(self.engine), name, self.rules
        )
        self.engine = self.state.engine(self.engine.name)
        return None if died else grown

    def _take(
        self, request: Request, hit: coordinator.Hit | None, end: int, recorded: Lists
    ) -> growth.Grown:
        """Blocks up to `end` tokens, all or nothing; those recorded, if any are. Where the pool has
        fewer than were predicted the engine dies."""
        free = len(self.engine.free)
        needed = coordinator.predicted(self.cfg, self.engine, request, hit, end, self.rules)
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

    def finish_load(self, choice: FinishLoad) -> None:
        """A load has ended: cache its blocks, or drop them if it failed."""
        request = self.engine.request(choice.request)
        tables = request.tables
        if request.status == FAILED:
            engine = pool.release_all(self.engine, request, self.rules)
            request = connector.emptied(request)._replace(status=WAITING)
            self.engine = engine.with_request(request)
        elif request.status == LOADED:
            self.engine, request = coordinator.cache(
                self.cfg, self.engine, request, request.computed, self.rules
            )
            computed = int(counts.resumed_at(request.computed, len(request.tokens)))
            status = PREEMPTED if request.preemptions else WAITING
            if not computed and follow_up_turns.asks_again(self.cluster, request, self.rules):
                status, computed = LOADING, request.computed
                self.allocations.append(Allocation(self.engine.name, request.id, 0, 0))
            request = request._replace(status=status, computed=computed)
            self.engine = self.engine.with_request(request)
        else:
            raise NotAllowed(f"{request.id} is {request.status} and its load is adopted")
        if self.engine.dead:
            self.chose.append(bare_choice(choice))
            self.die(self.engine.dead)
            return
        dropped = block_lists.freed(tables, request.tables)
        self.chose.append(choice._replace(freed=dropped))

    def compute(self, choice: Compute) -> None:
        """Schedule the next tokens of a running, adopted or just admitted request."""
        request = self.engine.request(choice.request)
        admitted = self.pending is not None and self.pending[0] == request.id
        hit = self.pending[1] if admitted and self.pending else None
        if request.status != RUNNING and not admitted and not request.tables:
            raise NotAllowed(f"{request.id} is {request.status} and is scheduled")
        if request.status in (LOADING, LOADED, FAILED, PAUSED):
            raise NotAllowed(f"{request.id} is {request.status} and is scheduled")
        if request.id in dict(self.scheduled):
            raise NotAllowed(f"{request.id} is scheduled twice in a step")
        self._refuse_more_than_run(request)
        start = hit.tokens + request.external if hit else request.computed
        limit = self.computable(request, start, admitted or request.status != RUNNING)
        if choice.tokens > limit and self.chunk(request, start, limit, hit) == choice.tokens:
            self.chose.append(bare_choice(choice))
            self.die(f"{choice.tokens} tokens are scheduled where {limit} were asked for")
            return
        if not 0 < choice.tokens <= limit:
            raise NotAllowed(f"{request.id} gets {choice.tokens} tokens of at most {limit}")
        if self.chunk(request, start, choice.tokens, hit) != choice.tokens:
            raise NotAllowed(f"{request.id} gets a chunk that the align split would cut")
        tables = request.tables
        if not admitted:
            self.engine, request = self._without_skipped(request)
        freed = block_lists.freed(tables, request.tables) or ((),) * len(self.cfg.groups)
        end = start + choice.tokens
        told = choice.taken
        if admitted and told:
            told = block_lists.both(self.to_bring, told)
        doomed = self.engine.dead
        grown = self._take(request, hit, end, told)
        request = grown.request
        self.chose.append(bare_choice(choice))
        self.pending = None
        if self.engine.dead:
            if doomed:  # a load was its death, and the scheduler went on
                self._say(choice._replace(taken=grown.taken, freed=freed), grown, admitted)
            return
        if hit and request.external:
            self.brought.append(request.id)
        known = int(self.rules.tokens_to_cache(end, len(request.tokens)))
        self.engine, request = coordinator.cache(self.cfg, self.engine, request, known, self.rules)
        if self.engine.dead:
            self.die(self.engine.dead)
            return
        running = self.engine.running
        if request.id not in running:
            running = (*running, request.id)
        ahead = end - in_flight.counted_on(self.engine, request)
        request = drafting.scheduled(request, ahead)._replace(status=RUNNING, computed=end)
        self.engine = self.engine.with_request(request)._replace(running=running)
        self.budget -= choice.tokens
        self.scheduled.append((request.id, choice.tokens))
        self._say(choice._replace(taken=grown.taken, freed=freed), grown, admitted)

    def _say(self, computed: Compute, grown: growth.Grown, admitted: bool) -> None:
        """The last choice says its blocks, and so does the admission that it is the first chunk
        of."""
        self.chose[-1] = computed
        for place in reversed(range(len(self.chose) if admitted else 0)):
            choice = self.chose[place]
            if isinstance(choice, Admit) and choice.request == computed.request:
                self.chose[place] = choice._replace(hit=grown.hit, taken=grown.brought)
                break

    def computable(self, request: Request, start: int, admitted: bool) -> int:
        """Tokens of a request that this step may still compute: known ones, and drafts, or one that
        a step in flight samples, where it is not the last."""
        if request.status == RUNNING and in_flight.all_under_way(self.engine, request):
            return 0
        known = in_flight.counted_on(self.engine, request)
        drafts = drafting.computable(self.cfg, request, start, admitted)
        return min(known + drafts - start, self.budget)

    def _without_skipped(self, request: Request) -> tuple[Engine, Request]:
        settled = in_flight.settled(self.engine, request, self.rules)
        return coordinator.release_skipped(self.cfg, self.engine, request, self.rules, settled)

    def chunk(self, request: Request, start: int, tokens: int, hit: coordinator.Hit | None) -> int:
        """The tokens of a chunk after the align split."""
        group = self.cfg.aligned_group
        if group is None:
            return tokens
        known = len(request.tokens)
        shared_prefix_boundary = (
            hit.shared_prefix_boundary if hit else request.shared_prefix_boundary
        )
        size = self.rules.split_block(group.block_size, min(g.block_size for g in self.cfg.groups))
        prefill_end = max(len(request.prompt), known - 1)
        boundary, tail = counts.longest_hit_tokens(known, size), 0
        if self.cfg.partial_block_hits:
            shared_prefix_boundary = counts.round_down(shared_prefix_boundary, size)
            tail = partial_block_hits.last_prefix(self.cfg, len(request.prompt))
            if boundary < tail == start + tokens:
                tokens = prefill_end - start  # a chunk may end there, off the grid
        tokens = int(
            self.rules.align_chunk(
                start,
                tokens,
                prefill_end,
                known,
                size,
                self.cfg.chunk_tokens,
                shared_prefix_boundary,
                self.cfg.eagle_drop_tokens,
            )
        )
        return int(self.rules.tail_chunk(start, tokens, boundary, tail))

    def preempt(self, choice: Preempt) -> None:
        """Take a running request's blocks; only where the needy one does not fit otherwise. By
        priority it may be one that is scheduled already, which then is taken out of the step. Where
        nobody runs, it may be a session that waits."""
        needy = self.engine.request(choice.needy)
        tables = needy.tables
        self.engine, needy = self._without_skipped(needy)
        skipped = block_lists.freed(tables, needy.tables)
        start = needy.computed
        wanted = self.chunk(needy, start, self.computable(needy, start, False), None)
        needed = coordinator.predicted(
            self.cfg, self.engine, needy, None, start + wanted, self.rules
        )
        if needed <= len(self.engine.free):
            raise NotAllowed(f"{choice.request} is preempted though {needy.id} fits")
        victim = self.engine.request(choice.request)
        scheduled = victim.id in dict(self.scheduled)
        reclaimed = sessions.gives_way(self.cluster, victim) and not self.engine.running
        idle = victim.status == RUNNING and (self.cfg.by_priority or not scheduled)
        if not idle and not reclaimed:
            raise NotAllowed(f"{victim.id} is preempted and is not idle")
        if in_flight.must_wait(self.cfg, self.engine, victim.id):
            raise NotAllowed(f"{victim.id} is preempted and its blocks would not come free now")
        if scheduled:
            self._unschedule(victim)
        self.engine = in_flight.invalidated(self.engine, victim.id, LATE)
        engine = pool.release_all(self.engine, victim, self.rules)
        freed = block_lists.both(skipped, block_lists.freed(victim.tables, ()))
        kept = tuple(int(self.rules.counted_after_preemption(c)) for c in victim.num_cached_blocks)
        victim = connector.emptied(victim)._replace(num_cached_blocks=kept if any(kept) else ())
        victim = victim._replace(status=PREEMPTED, preemptions=1)
        running = tuple(r for r in engine.running if r != victim.id)
        self.engine = engine.with_request(victim)._replace(running=running)
        self.chose.append(choice._replace(freed=freed))

    def release(self, choice: Release) -> None:
        """A request that waits for blocks keeps none that it needs no more."""
        request = self.engine.request(choice.request)
        if request.status not in (RUNNING, WAITING, PREEMPTED) or not request.tables:
            raise NotAllowed(f"{request.id} is {request.status} and lets go of blocks")
        self.engine, kept = self._without_skipped(request)
        freed = block_lists.freed(request.tables, kept.tables)
        self.chose.append(choice._replace(freed=freed))

    def _unschedule(self, victim: Request) -> None:
        """Take a request out of the step. What it was to compute is not computed."""
        self.budget += dict(self.scheduled)[victim.id]
        self.scheduled = [(name, tokens) for name, tokens in self.scheduled if name != victim.id]
        self.engine = self.rules.forget_uncomputed(self.begun, self.engine, victim, self.rules)

    def take_choice(self, choice: Choice) -> None:
        """Carry out one recorded choice, with the blocks that it says it took."""
        groups_said = {len(getattr(choice, name, ())) for name in BLOCKS} - {0}
        if groups_said - {len(self.cfg.groups)}:
            raise NotAllowed(
                f"{choice.request} has blocks in {max(groups_said)} groups, and engine "
                f"{self.cfg.name} has {len(self.cfg.groups)}"
            )
        if isinstance(choice, Admit):
            self.admit(choice)
        elif isinstance(choice, FinishLoad):
            self.finish_load(choice)
        elif isinstance(choice, Compute):
            self.compute(choice)
        elif isinstance(choice, Release):
            self.release(choice)
        else:
            self.preempt(choice)

    def finish(self) -> tuple[State, Effects]:
        """Hand the step to the worker, which runs it; what a store brings is there before."""
        if self.pending is not None:
            raise NotAllowed(f"{self.pending[0]} is admitted and not scheduled")
        engine = self.engine
        batch = [
            (engine.request(r), tokens)
            for r, tokens in self.scheduled
            if not in_flight.awaits(self.cfg, engine, r)
        ]
        for name in self.brought:
            engine = memory.load(self.cfg, engine, engine.request(name))
        copies = partial_block_hits.handed_out(engine)
        engine, reads = self.rules.run_step(self.cfg, engine, batch, self.rules)
        if self.cfg.overlaps:
            engine = in_flight.dispatched(self.cfg, engine, self.scheduled)
        else:
            engine = engine._replace(step=tuple(self.scheduled) or None)
        admissions, allocations = tuple(self.admissions), tuple(self.allocations)
        effects = Effects(reads, admissions, allocations, copies=copies)
        return self.state.with_engine(engine), effects


def complete(
    cluster: config.Cluster,
    rules: Rules,
    state: State,
    name: str,
    accepted: drafting.Accepted = (),
) -> State:
    """A step's output arrives: whoever has computed all known tokens samples one, after the drafts
    that were accepted, and may end."""
    cfg = cluster.engine(name)
    engine = state.engine(name)
    if engine.step is None:
        raise NotAllowed(f"engine {name} has no step in flight")
    scheduled = engine.step
    drafting.check(engine, accepted)
    right = dict(accepted)
    state = state.with_engine(engine._replace(step=None))
    for request_id, _ in scheduled:
        engine = state.engine(name)
        request = engine.request(request_id)
        doubtful = max(request.computed - len(request.tokens), 0)
        engine = store.keeping(cfg, engine, request.tokens, request.computed, doubtful)
        state = state.with_engine(engine)
        samples = request.computed >= len(request.tokens)
        drafts = right.get(request_id, 0)
        if cfg.drafts:
            engine, request = drafting.settled(cfg, engine, request, drafts, rules)
            state = state.with_engine(engine)
        if not samples:
            continue
        request = drafting.lengthened(request, drafts + 1)._replace(drafts=cfg.drafts)
        state = state.with_engine(engine.with_request(request))
        if len(request.output) < request.max_tokens:
            continue
        if cluster.job(request_id).parts:
            state = sessions.paused(state, name, request, rules)
        else:
            state = connector.finish(cfg, state, request, rules, cluster.follow_up_turns)
    return state
