"""One engine under test: the real scheduler with the connector, and the worker of the kit."""

import contextlib
import copy
import inspect
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import torch

from kvproof.live import adapt, blame, build, step_output
from kvproof.live.arguments import Reads
from kvproof.live.connectors import hidden
from kvproof.live.connectors.earlier import EarlierLoads, EarlierRequests
from kvproof.live.connectors.listeners import LookUps, NamedPrefixes, Opened, Prompts, listen
from kvproof.live.connectors.owners import Owners
from kvproof.live.connectors.worker import ConnectorWorker
from kvproof.live.death import death_of, place
from kvproof.live.encoder_settings import only_encodes
from kvproof.live.endless import watched
from kvproof.live.fakes import streams
from kvproof.live.fakes.clock import LEASE_S, Clock
from kvproof.live.fakes.store_client import StoreClient
from kvproof.live.observer import shown
from kvproof.live.observer.view import Names
from kvproof.model import state
from kvproof.model.arithmetic import counts
from kvproof.model.facts.connectors import (
    Announced,
    AskedAfterReset,
    Begun,
    BlocksKept,
    CacheStatistics,
    Called,
    Fact,
    LoadEnded,
    LoadFailed,
    LoadOver,
    Matched,
    MayFail,
    Owed,
    Promised,
    RequestsEnded,
    ResetAnswered,
    SendEnded,
    SlotsRead,
    StoreReset,
    Unfreed,
    Waits,
)
from kvproof.model.plans.connector import Another, ConnectorPlan, SubmitRequest, Who
from kvproof.model.state import SAMPLED

LAYERS = 2
"""The number of layers of each group. With more than one, a load that ends after the first layer is
found."""

IDLE_STEPS_MAX = 50
"""The number of steps without any change after which the engine counts as making no progress."""

ENDS_WELL = ("stop", "length")
"""The reasons with which vLLM ends a request that nobody has aborted and that has not failed."""

SERVED_STEPS_MAX = LEASE_S // 2 + 5
"""Steps without any change and without any request after which the engine has nothing to do but to
serve others: what it keeps for another has ended by then. A step of each of two takes two
seconds."""

DRAIN_STEPS_MAX = 1_000
"""The number of steps after which an engine counts as stepping without end: a plan has fewer
tokens."""


class LastReset(NamedTuple):
    """The last reset of the connector's cache: whether the engine was `idle`, whether the connector
    said that it was `done`, and the number of steps with tokens before it."""

    idle: bool
    done: bool
    steps: int


class DrivenEngine:
    """One engine under test. `facts` has the facts since `take_facts` was last called. The engine
    serves `another` model than that of the plan, or one with another type of values. An engine of
    several (`paired`) continues to step while it keeps blocks for another engine. `counts` has what
    a pair of base and head compares (`gate.difference.record.COUNTED`). Its loop `stands` for so
    many steps; until then, messages are in its `inbox`."""

    def __init__(
        self,
        plan: ConnectorPlan,
        connector: Mapping[str, Any],
        clock: Clock,
        keeps_prompts: bool = False,
        paired: bool = False,
        replica: int | None = None,
        another: Another = "",
    ) -> None:
        self.paired = paired
        self.cfg = plan.engine
        self.earlier = EarlierRequests(plan.engine, keeps_prompts)
        self.earlier_loads = EarlierLoads()
        self.clock, self.plan, self.connector = clock, plan, connector
        self.replica = replica
        self.facts: list[Fact] = []
        self.dead = False
        self.arrived = self.steps = self.steps_with_tokens = self.failed_loads = 0
        self.last_reset: LastReset | None = None
        self.forgets = False
        self.given_up: dict[str, int] = {}
        self.named = NamedPrefixes(plan.engine.hash_block_size)
        self.announced: dict[tuple[Any, ...], int] = {}
        self.looked_up: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.answers: list[object] = []
        self.names = Names(plan.engine)
        self.invalid: defaultdict[str, set[int]] = defaultdict(set)
        self.failing: set[str] = set()
        self.queue: deque[tuple[Any, Any, int]] = deque()
        self.stands = 0
        self.inbox: deque[Callable[[], None]] = deque()
        self.returned: dict[str, dict[str, Any]] = {}
        self.first = build.ServedModel(
            dtype=plan.dtypes[0],
            latent=plan.latent,
            uneven=plan.uneven,
            hidden=plan.hidden,
            encodes=only_encodes(connector["kv_connector_extra_config"]),
        )
        self.served = self.first.changed(another, plan.dtypes)
        caches = plan.engine.prefix_caching and not self.first.encodes
        self.lookups = LookUps(plan.engine, caches)
        self.opened = Opened()
        try:
            with watched():
                self.scheduler = self._scheduler()
                self.owners = Owners(plan.engine, self.scheduler, plan.local, plan.stripes)
                self.owners.model = self.served.unlike(self.first)
                self.prompts = Prompts(self.owners.prompts, plan.engine, caches)
                self._begin()
        except BaseException:
            self.opened.note()
            self.opened.remove()
            raise

    def _scheduler(self) -> Any:
        plan = self.plan
        return build.scheduler(
            plan.engine,
            plan.load_failure,
            connector=self.connector,
            layers=LAYERS,
            local=plan.local,
            ranks=plan.ranks,
            stripes=plan.stripes,
            every_state=plan.every_state,
            of_rank=self.served.on_rank(plan.ranks, plan.parts_of_states)
            if plan.tensor
            else build.ALL_OF_IT,
            served=self.served,
            replica=self.replica,
        )

    def _begin(self) -> None:
        """Make the workers of a new scheduler, and make both sides of the connector known to each
        other."""
        connector = self.scheduler.connector
        self._listen(connector)
        self.tiers = listen(connector, self.facts, self.counts)
        parts = self.plan, self.scheduler, self.owners, self.facts, self.clock
        self.workers = [ConnectorWorker(*parts, rank) for rank in range(self.plan.ranks)]
        self.worker = self.workers[0]
        self.pools = shown.pools(self.scheduler)
        self.reports = self._aggregator() if self.plan.ranks > 1 else None
        introduce([worker.connector for worker in self.workers], connector)
        self.opened.note()

    # What the environment may do.

    def restart(self, another: Another = "") -> None:
        """Shut the engine down if no request runs, and start one in another process. Stored
        prefixes may be offered to the new engine, unless it serves `another` model or type of
        values."""
        if self.dead or self.running or self.queue:
            return
        self.end()
        self._call(self._start, another)

    def _start(self, another: Another) -> None:
        self.clock.begin_again()
        streams.begin()
        self.invalid.clear()
        for known in (self.given_up, self.failing, self.announced):
            known.clear()
        self.earlier.restart(another=bool(another))
        self.earlier_loads = EarlierLoads()
        self.last_reset = None
        self.served = self.served.changed(another, self.plan.dtypes)
        self.owners.model = self.served.unlike(self.first)
        self.opened.remove()
        self.opened = Opened()
        self.scheduler = self.owners.scheduler = self._scheduler()
        self._begin()
        self.owners.counted["engines that were started again"] += 1

    def submit(
        self, name: str, arrives: SubmitRequest, transfer: dict[str, Any] | None = None
    ) -> None:
        """Submit a request, with these `kv_transfer_params` or, without them, with its own demands
        on the connector."""
        tokens = arrives.tokens_of_prompt
        known = state.Request(
            name, state.WAITING, tokens, len(tokens), arrives.max_tokens, route="local"
        )
        self.owners.prompts[name] = arrives.prompt
        self.owners.beside[name] = f"{arrives.beside}:" if arrives.beside else ""
        request = build.request(
            self.cfg,
            known,
            transfer or dict(arrives.asks),
            0,
            self.arrived,
            more=_arguments(arrives),
        )
        request.skip_reading_prefix_cache = arrives.computes_all
        request.sampling_params.skip_reading_prefix_cache = arrives.computes_all
        self.arrived += 1
        self.named.add(request)
        self._send(self.scheduler.add_request, request)

    def abort(self, name: str) -> None:
        """Abort a request, as its client disconnects."""
        from vllm.v1.request import RequestStatus

        self._send(self.scheduler.finish_requests, name, RequestStatus.FINISHED_ABORTED)

    def reset(self, running: bool = False, connector: bool = False) -> None:
        """Reset the engine's prefix cache, if no request runs; with `running`, preempt the running
        requests first. The connector's cache is reset too only with `connector`."""
        if self.stands:
            self.inbox.append(lambda: self.reset(running, connector))
            return
        idle = not (self.scheduler.has_requests() or self.scheduler.requests or self.queue)
        if connector:
            self.facts.append(StoreReset())
            self.clock.order.forget_copies()
            self.announced.clear()
            self.earlier.reset(self.scheduler.requests)
            self.forgets = False
        self._call(self._reset, running, connector)
        if connector:
            self.last_reset = LastReset(idle, self.forgets, self.steps_with_tokens)

    def _reset(self, running: bool, connector: bool) -> None:
        """Reset the caches. An exception of the connector's reset goes to the caller, and the
        engine continues."""
        idle = not (self.has_work or self.queue)
        requests = len(self.scheduler.requests)
        answer = ResetAnswered(False, connector, idle, requests, self._taken())
        try:
            done = self.scheduler.reset_prefix_cache(
                reset_running_requests=running, reset_connector=connector
            )
            answer = answer._replace(done=done is True)
        except Exception as error:
            self.forgets = False
            # The scheduler itself refuses to reset while a transfer has blocks.
            of_scheduler = place(error).name == "reset_prefix_cache"
            refused = isinstance(error, RuntimeError) and of_scheduler
            if not refused:
                if blame.is_ours(error) or not connector:
                    raise
                cannot = isinstance(error, NotImplementedError)
                answer = answer._replace(cannot=cannot, death=None if cannot else death_of(error))
        self.facts.append(answer)

    def pause(self, new: bool) -> None:
        """Schedule no requests, or no `new` requests, from now on."""
        from vllm.v1.core.sched.interface import PauseState

        state = PauseState.PAUSED_NEW if new else PauseState.PAUSED_ALL
        self._send(self.scheduler.set_pause_state, state)

    def resume(self) -> None:
        """End a pause."""
        from vllm.v1.core.sched.interface import PauseState

        self._send(self.scheduler.set_pause_state, PauseState.UNPAUSED)

    def step(self) -> None:
        """Run the engine's loop once, if the engine says that it has work: a step is scheduled and
        executed, and where steps do not overlap its output arrives at once. A loop that stands does
        nothing, and time passes."""
        if self.stands:
            self.clock.tick()
            self.stands -= 1
            if not self.stands:
                self.go_on()
        elif self.has_work:
            self._call(self._step)
        else:
            self._settle()

    def deliver(self) -> None:
        """Deliver the output of the oldest step in flight to the scheduler."""
        if self.queue and not self.stands:
            self._call(self._update)

    def stand(self, who: Who, steps: int) -> None:
        """Let the engine's loop, or the threads behind the connector, stand for so many steps."""
        if who == "store":
            self.clock.stand(steps)
            self.loses()
        else:
            self.stands += steps

    def go_on(self) -> None:
        """Let a loop that stands go on, and take the messages that have come."""
        self.stands = 0
        while self.inbox:
            self.inbox.popleft()()

    def drain(self) -> None:
        """Run the engine, without new requests, until it says that it has no work, or until nothing
        changes any more. Blocks and reports that it still owes then become facts."""
        self.resume()
        drained(self, (self,))

    @property
    def has_work(self) -> bool:
        """Whether the engine's loop continues. An engine of a pair is taken to serve others too, so
        it continues to step while it keeps blocks of an ended request."""
        keeps = self.paired and bool(self.scheduler.requests)
        return not self.dead and (self.scheduler.has_requests() or keeps or bool(self.inbox))

    def note_waiting(self, steps: int, endless: bool) -> None:
        """Record as facts the requests that are left after `steps` steps without any change or, if
        `endless`, with changes that do not end. An ended request among them waits for nothing, and
        still has blocks."""
        free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        requests = self.scheduler.requests
        holders = {name for name in requests if any(self.owners.tables(name))}
        found = []
        for name, request in requests.items():
            lacks, others = self._lacks(request), len(holders - {name})
            found.append(
                Waits(name, request.status.name, steps, *lacks, free, others, endless=endless)
            )
        self._note_ended()
        first = next((f.request for f in found if f.request in holders and f.lacks_copies), "")
        for each in found:
            if requests[each.request].is_finished():
                self.facts.append(Unfreed(each.request, each.status, steps))
            else:
                behind = "" if each.request in holders else first
                self.facts.append(each._replace(behind=behind))

    def _note_ended(self) -> None:
        self.facts.append(RequestsEnded(self.arrived - len(self.scheduler.requests)))

    def _lacks(self, request: Any) -> tuple[int, int]:
        """The number of further blocks that a request needs for its next step, and the number for
        copies of states that end inside a block."""
        done, cfg = request.num_computed_tokens, self.cfg
        end = min(request.num_tokens, done + cfg.chunk_tokens)
        tables = self.owners.tables(request.request_id)
        needs = sum(
            max(int(counts.blocks_for_tokens(end, group.block_size)) - len(table), 0)
            for group, table in zip(cfg.groups, tables, strict=True)
        )
        states = (group for group in cfg.groups if not group.attention)
        inside = sum(done % group.block_size > 0 for group in states)
        return needs, inside * cfg.partial_block_hits

    def note_owed(self, steps: int = 0) -> None:
        """Record as facts what an engine without work still owes. `steps` is the number of steps of
        an engine that has no request and steps without end."""
        if self.dead:
            return
        self._settle()
        for where, count in self.looked_up.items():
            self.facts.append(CacheStatistics(where, count, self.arrived, self.failed_loads))
        self.facts.extend(self.lookups.facts())
        if self.plan.hidden:
            self.clock.run()  # who reads a file waits until it is written
            self.facts.extend(hidden.saved(self.returned, self.owners, self.worker.caches))
            self.returned.clear()
        self.facts.extend(self.worker.encoder.owed())
        self.facts.extend(tier.idle() for tier in self.tiers)
        self.facts.append(Owed(self._taken(), tuple(self.scheduler.requests), steps))
        free = sum(pool.get_num_free_blocks() for pool in self.pools)
        self.counts["free blocks at the end"] = free
        self._note_ended()

    def _taken(self) -> int:
        """The number of blocks that are not free, without the null block."""
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return self.cfg.num_blocks - 1 - free

    def take_facts(self) -> list[Fact]:
        """The facts since the last call."""
        facts = self.facts[:]
        self.facts.clear()
        return facts

    def shown(self) -> list[object]:
        """What vLLM answered since the last call and, while the engine lives, its state."""
        answers, self.answers = self.answers, []
        if self.dead:
            return answers
        for name, request in self.scheduler.requests.items():
            tokens = self.owners.prompts[name][: request.num_prompt_tokens]
            self.names.learn(request, tokens + SAMPLED * len(request.output_token_ids))
        return [*answers, *shown.state(self.scheduler, self.pools, self._prefix)]

    def _prefix(self, key: Any) -> object:
        """The group and the prefix of a key of the prefix cache; of a key with a salt, which has no
        name, the group alone."""
        group, prefix = self.names.key(key)
        return group, "" if prefix.startswith("unknown ") else prefix

    def end(self) -> None:
        """Shut the engine down: both sides of the connector, and the scheduler."""
        for part in (*(worker.connector for worker in self.workers), self.scheduler):
            self._call(part.shutdown)
        if not self.dead:  # cannot be judged: nobody can shut a dead engine down
            self.facts.extend(self.opened.closed())

    def close(self) -> None:
        """Free the resources that a dead engine still has."""
        self.clock.over = True
        for part in (*(worker.connector for worker in self.workers), self.scheduler):
            with contextlib.suppress(Exception), watched():
                part.shutdown()
        self.clock.end()
        self.opened.remove()

    @property
    def counted(self) -> Counter[str]:
        """What happened of which there is no fact, by its name, and how often."""
        return self.owners.counted

    @property
    def standing(self) -> list[tuple[str, str, str, bool]]:
        """The engine, name and status of each request, and whether it has blocks."""
        return [
            (self.cfg.name, name, request.status.name, any(self.owners.tables(name)))
            for name, request in self.scheduler.requests.items()
        ]

    @property
    def running(self) -> list[str]:
        """The requests that have not ended, in the order of their arrival."""
        return [n for n, r in self.scheduler.requests.items() if not r.is_finished()]

    # What it does.

    def _step(self) -> None:
        if len(self.queue) == self.cfg.steps_in_flight:
            self._update()
        ran = {request.request_id for request in self.scheduler.running}
        output = adapt.scheduled(self.scheduler)
        self.answers.append(shown.plain(output))
        self._note_begun(output, ran)
        self._note_short()
        self.queue.append((output, self._execute(output), self.clock.order.computed))
        if not self.cfg.overlaps:
            self._update()
            self._propose(output)

    def _update(self) -> None:
        """Process the output of the oldest step in flight in the scheduler."""
        output, result, computed = self.queue.popleft()
        self.clock.order.finish(computed)
        encoder = self.worker.encoder
        known = dict(self.scheduler.requests) if encoder.alone else {}
        answered = self.scheduler.update_from_output(output, result)
        self.answers.append(shown.plain(answered))
        for outputs in answered.values():
            for each in outputs.outputs:
                self.counts["last steps of requests"] += self.steps * (
                    each.finish_reason is not None
                )
                if each.kv_transfer_params:
                    self.returned[each.request_id] = each.kv_transfer_params
                self.facts.extend(self.prompts.reported(each))
                if known and str(each.finish_reason) in ENDS_WELL:
                    self.facts.append(encoder.ended(known[each.request_id]))
            stats = outputs.scheduler_stats
            if stats is None:
                continue
            self._count("engine's", stats.prefix_cache_stats)
            if stats.connector_prefix_cache_stats is not None:
                self._count("connector's", stats.connector_prefix_cache_stats)

    def _count(self, where: str, stats: Any) -> None:
        """Add the statistics of a prefix cache that came with a step."""
        self.looked_up[where] += stats.requests
        self.lookups.count(where, stats)

    def _propose(self, output: Any) -> None:
        """Propose draft tokens for the requests of a step."""
        names = [*output.num_scheduled_tokens]
        if self.cfg.drafts and names and not self.worker.encoder.alone:
            self.scheduler.update_draft_token_ids(step_output.drafted(names, self.cfg.drafts))

    def _execute(self, output: Any) -> Any:
        begin = len(self.facts)
        self.steps += 1
        self.steps_with_tokens += bool(output.num_scheduled_tokens)
        for new in output.scheduled_new_reqs:
            skips = self.scheduler.requests[new.req_id].skip_reading_prefix_cache
            self.facts.append(Begun(new.req_id, new.num_computed_tokens, bool(skips)))
        results = [worker.execute(self._sent(output)) for worker in self.workers]
        result = self.reports.aggregate(results) if self.reports is not None else results[0]
        self.facts.extend(StoreClient.take_stored())
        moved = getattr(result, "kv_connector_output", None)
        if moved is not None:
            for name in ("finished_sending", "finished_recving"):
                setattr(moved, name, adapt.in_order(getattr(moved, name)))
            self._note_reports(moved)
        invalid = set(moved.invalid_block_ids) if moved is not None else set()
        spared = self.owners.holding(invalid)
        ended = (fact for fact in self.facts[begin:] if isinstance(fact, LoadEnded))
        failed = spared | {fact.request for fact in ended if fact.failed}
        self.failed_loads += len(failed & {*self.owners.loads})
        for name in failed:
            self.prompts.fail(name)
            self.earlier_loads.fail(name)
        if spared:
            self.facts[begin:] = _without(self.facts[begin:], spared)
        self._end_loads(output, self.facts[begin:])
        return result

    def _sent(self, output: Any) -> Any:
        """The step as a worker receives it: each of several workers is another process, with its
        own objects."""
        if self.plan.ranks == 1:
            return output
        sent = copy.copy(output)
        sent.kv_connector_metadata = copy.deepcopy(output.kv_connector_metadata)
        return sent

    def _aggregator(self) -> Any:
        """The object that merges the reports of all workers (vLLM's executor has it)."""
        from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator

        return KVOutputAggregator.from_connector(self.worker.connector, len(self.workers))

    def _note_reports(self, moved: Any) -> None:
        """Record as facts what the workers report together, and the slots that their loads left
        wrong."""
        finished = set(moved.finished_recving or ())
        invalid = set(moved.invalid_block_ids or ())
        if invalid:
            self.facts.append(LoadFailed(tuple(sorted(invalid)), self.owners.loading_blocks()))
        # A worker may report a failure before the end of the load.
        for name in self.owners.loads:
            self.invalid[name] |= invalid.intersection(chain(*self.owners.tables(name)))
        for name in sorted(getattr(moved, "failed_recving", None) or ()):  # from 0.32 on
            if name in self.owners.loads:
                self.failing.add(name)
            elif name not in finished:
                self.facts.append(LoadEnded(name, failed=True))
        for name in sorted(finished):
            bad, lost = name in self.failing, self.invalid.pop(name, set())
            self.failing.discard(name)
            for worker in self.workers:
                if not bad:
                    self.facts.extend(self.owners.loaded_later(worker.caches, name, lost))
            self.facts.append(LoadEnded(name, bad))
        self.facts.extend(SendEnded(name) for name in sorted(moved.finished_sending or ()))

    def _end_loads(self, output: Any, facts: Sequence[Fact]) -> None:
        """End loads: those within the step end with it, others when the worker reports them in
        it."""
        loads = self.owners.loads
        for fact in facts:
            if isinstance(fact, LoadEnded):
                loads.pop(fact.request, None)
        for name in output.num_scheduled_tokens:
            if name in loads and not loads[name].later:
                del loads[name]

    def progress(self) -> object:
        """The values that change while the engine makes progress."""
        requests = self.scheduler.requests.values()
        return (
            [(r.request_id, r.status, r.num_computed_tokens, r.num_tokens) for r in requests],
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            sorted(self.owners.loads),
        )

    def _call(self, what: Callable[..., Any], *arguments: Any) -> None:
        """Call vLLM. An exception kills the engine."""
        if self.dead:
            return
        called = Called()
        try:
            with watched():
                what(*arguments)
        except Exception as error:
            self.dead = True
            blame.spare(error)
            home = inspect.getsourcefile(type(self.scheduler.connector))
            called = Called(death_of(error), blame.went_through(error, home))
        self.facts.append(called)

    def _send(self, what: Callable[..., Any], *arguments: Any) -> None:
        """Call vLLM as a message asks it to: at once or, if its loop stands, when it goes on."""
        if self.stands:
            self.inbox.append(lambda: self._call(what, *arguments))
        else:
            self._call(what, *arguments)

    def loses(self) -> None:
        """Let the memory behind the connector fail: nothing is expected of it from now on."""
        self.earlier.failed = True
        self.facts.append(MayFail())

    def _settle(self) -> None:
        """Record that the engine is idle, if it is: it has stored the prompts of ended requests."""
        if not (self.queue or self.scheduler.has_requests()):
            self.earlier.settle()
            self.given_up.clear()

    def _note_begun(self, output: Any, ran: set[str]) -> None:
        """Record the tokens that a step computes, and the number of tokens with which each request
        begins that did not run before this step."""
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            self._note_computed(request, min(request.num_computed_tokens, request.num_tokens))
            if name not in ran:
                begun = request.num_computed_tokens - tokens
                self.prompts.begin(name, request.num_prompt_tokens, begun)

    def _note_computed(self, request: Any, tokens: int) -> None:
        """Record that steps compute the first tokens of a request."""
        name = request.request_id
        prompt = self.owners.prompts[name]
        answer = None if self.plan.stores_answers else len(prompt)
        self.earlier.compute(
            name, self.owners.beside[name], prompt[:tokens].ljust(tokens, SAMPLED), answer
        )

    def _note_short(self) -> None:
        """Record the blocks that a window group frees while its request runs. Once they may be used
        again, a connector that stores a step later cannot have stored them."""
        pool = self.scheduler.kv_cache_manager.block_pool
        null = pool.null_block.block_id
        for name in self.running:
            self.given_up[name] = sum(table.count(null) for table in self.owners.tables(name))
        if pool.get_num_free_blocks() < sum(self.given_up.values()):
            self.earlier.happened("freed", self.given_up)

    def _note_match(self, match: Matched) -> None:
        """Record how an answer about matched tokens compares with what was computed before."""
        self.facts.append(match)
        name, tokens = match.request, match.tokens or 0
        prompt, beside = self.owners.prompts[name], self.owners.beside[name]
        end = match.computed_tokens + tokens
        later = match.tokens is None
        looked_up = self.earlier.look_up(
            name, beside, prompt, end, later=later, skips=match.computes_all
        )
        if looked_up is not None:
            self.facts.append(looked_up)
        # cannot be judged: what one of several engines is offered, another computes in between
        if self.last_reset is not None and not self.paired:
            idle, done, steps = self.last_reset
            fresh = self.earlier.fresh(beside, prompt)
            more = idle, done, self.steps_with_tokens > steps
            self.facts.append(AskedAfterReset(name, tokens, end, fresh, *more))

    def _note_event(self, event: Any) -> None:
        """Record an event of stored blocks, and the tokens that it carries for each hash whose
        prefix is known. An event of removed blocks has hashes alone."""
        group = getattr(event, "group_idx", None)
        place = group, getattr(event, "medium", None), getattr(event, "ownership", None)
        blocks = {(*place, each) for each in getattr(event, "block_hashes", ())}
        before = [self.announced.pop(each) for each in blocks if each in self.announced]
        if not hasattr(event, "token_ids"):
            return
        self.announced.update(dict.fromkeys(blocks, self.steps))
        size = self.cfg.groups[group].block_size if group is not None else None
        # The scheduler learns of a copy that is over one step later, and stores a step later.
        lasts = self.plan.copies.steps + 2
        again = len(before), bool(before) and self.steps - min(before) <= lasts
        several = "connectors" in self.connector["kv_connector_extra_config"]
        sizes = len(event.block_hashes), len(event.token_ids or ()), event.block_size
        self.facts.append(Announced(*sizes, size, len(self.cfg.groups), *again, several))
        self.facts.extend(self.named.carried(event))

    def _listen(self, connector: Any) -> None:
        """Record the answers of the scheduler side of the connector."""
        original = connector.get_num_new_matched_tokens
        allocated = connector.update_state_after_alloc
        computed_of: dict[str, tuple[int, bool]] = {}

        of_match = Reads(connector, "get_num_new_matched_tokens", "request", "num_computed_tokens")
        of_load = Reads(connector, "update_state_after_alloc", "request", "num_external_tokens")

        def matched(*args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            request, num_computed_tokens = of_match(args, kwargs)
            tokens, later = answer
            computed_of[request.request_id] = num_computed_tokens, later
            self.lookups.look_up(request, num_computed_tokens)
            name, whole = request.request_id, request.num_tokens
            skipped = bool(request.skip_reading_prefix_cache)
            self._note_match(Matched(name, num_computed_tokens, tokens, later, whole, skipped))
            return answer

        def promised(*args: Any, **kwargs: Any) -> Any:
            request, num_external_tokens = of_load(args, kwargs)
            self.lookups.admit(request, num_external_tokens)
            if num_external_tokens:
                name = request.request_id
                start, later = computed_of[name]
                computes_all = request.skip_reading_prefix_cache
                twice = self.earlier_loads.begin(
                    name,
                    self.owners.beside[name],
                    self.owners.prompts[name],
                    start,
                    start + num_external_tokens,
                    self.owners.loads,
                )
                load = Promised(name, start, num_external_tokens, later, computes_all, *twice)
                self.owners.loads[name] = load
                self.facts.append(load)
                self.prompts.promise(name, start, num_external_tokens)
            return allocated(*args, **kwargs)

        def ended(name: str) -> Callable[..., Any]:
            finish, of_end = getattr(connector, name), Reads(connector, name, "request")

            def finished(*args: Any, **kwargs: Any) -> Any:
                answer = finish(*args, **kwargs)
                [request] = of_end(args, kwargs)
                well = request.status.name in ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")
                if well:  # the last token of an answer is not computed
                    self._note_computed(request, request.num_tokens - 1)
                self.earlier.end(request.request_id, well=well)
                if answer[0]:
                    self.facts.append(BlocksKept(request.request_id))
                return answer

            return finished

        def reset(*args: Any, **kwargs: Any) -> Any:
            answer = empty(*args, **kwargs)
            self.forgets = answer is True
            return answer

        def events(*args: Any, **kwargs: Any) -> list[Any]:
            answer = list(taken(*args, **kwargs) or ())
            self.answers.append(sorted(map(shown.plain, answer), key=repr))
            self.counts["events published"] += len(answer)
            for event in answer:
                self._note_event(event)
            return answer

        taken, connector.take_events = connector.take_events, events
        empty, connector.reset_cache = connector.reset_cache, reset
        connector.get_num_new_matched_tokens = matched
        connector.update_state_after_alloc = promised
        for name in ("request_finished", "request_finished_all_groups"):
            if hasattr(connector, name):
                setattr(connector, name, ended(name))


class Steps(Protocol):
    """An engine or a pair of engines, which can take steps."""

    def step(self) -> None: ...
    def deliver(self) -> None: ...


def drained(loop: Steps, engines: Sequence[DrivenEngine]) -> None:
    """Run engines until none has work or one is dead, or until nothing changes any more. Blocks and
    reports that they still owe then become facts. Where a loop stands, the requests that wait for
    it without end, on other engines, become facts before it goes on."""
    if any(each.stands for each in engines):
        _run_on(loop, engines)
        for each in engines:
            each.go_on()
    alone = _run_on(loop, engines)
    if alone is not None:
        for each in engines:
            each.note_owed(alone * each.has_work)


def _run_on(loop: Steps, engines: Sequence[DrivenEngine]) -> int | None:
    """Run engines until none has work or nothing changes any more. Returns the number of the last
    steps in which no request was left, or None where an engine is dead or a request is left, which
    becomes a fact."""
    idle, before, taken, alone = 0, None, 0, 0
    while any(each.has_work or each.queue for each in engines):
        if any(each.dead for each in engines):
            return None
        loop.step()
        loop.deliver()
        now = [each.progress() for each in engines]
        idle, before = (idle + 1, before) if now == before else (0, now)
        taken += 1
        none_left = not any(e.scheduler.requests or e.queue or e.inbox for e in engines)
        alone = (alone + 1) * none_left
        if idle > SERVED_STEPS_MAX and none_left:
            break  # they go round for what another engine may ask
        if taken > DRAIN_STEPS_MAX and none_left:
            break  # what it owes is noted below, for there is nobody who waits
        if idle > IDLE_STEPS_MAX or taken > DRAIN_STEPS_MAX:
            steps, endless = (taken, True) if idle <= IDLE_STEPS_MAX else (idle, False)
            for each in engines:
                if not each.stands:
                    each.note_waiting(steps, endless)
            return None
    return alone


def introduce(workers: Sequence[Any], scheduler: Any) -> None:
    """Give the scheduler's side of a connector the metadata by which other engines find its
    workers, as vLLM's engine core does at its start."""
    known = {rank: worker.get_handshake_metadata() for rank, worker in enumerate(workers)}
    if None in known.values():
        return
    if hasattr(scheduler, "set_xfer_handshake_metadata_pp_aware"):
        stages = {(0, rank): of_rank for rank, of_rank in known.items()}
        scheduler.set_xfer_handshake_metadata_pp_aware(stages)
    else:
        scheduler.set_xfer_handshake_metadata(known)


def _without(facts: Sequence[Fact], spared: set[str]) -> Iterator[Fact]:
    """The facts of a step without what requests loaded or read wrong whose load failed: it cannot
    be judged, as vLLM computes these tokens again, and nothing of the step reaches the answer."""
    for fact in facts:
        if isinstance(fact, SlotsRead):
            wrong = tuple(each for each in fact.wrong if each.request not in spared)
            yield fact._replace(wrong=wrong)
        elif not (isinstance(fact, LoadOver) and fact.request in spared):
            yield fact


def _arguments(arrives: SubmitRequest) -> dict[str, Any]:
    """The arguments of a request beside its tokens."""
    more: dict[str, Any] = {}
    if arrives.beside == "salt":
        more["cache_salt"] = "salt"
    if arrives.beside == "lora":
        from vllm.lora.request import LoRARequest

        more["lora_request"] = LoRARequest("adapter", 1, "/nowhere")
    if arrives.whole:
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        more["mm_features"] = [
            MultiModalFeatureSpec(None, "image", each.name, PlaceholderRange(each.at, each.tokens))
            for each in arrives.whole
        ]
    if arrives.rows is not None:
        rows = arrives.rows
        more["prompt_embeds"] = torch.tensor([[row] * build.HIDDEN for row in arrives.embeddings])
        given = range(rows.at, rows.at + rows.tokens)
        more["prompt_is_token_ids"] = [
            n not in given or not rows.used for n in range(arrives.tokens)
        ]
    return more
