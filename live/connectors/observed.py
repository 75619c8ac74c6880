"""An engine whose steps somebody else makes, with the kit's workers: what its connector does
becomes facts."""

import copy
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from kvproof.live import adapt
from kvproof.live.batch import Batch, ComputedPart
from kvproof.live.connectors import hidden
from kvproof.live.connectors.earlier import EarlierLoads, EarlierRequests
from kvproof.live.connectors.listeners import LookUps, Prompts, carried, listen
from kvproof.live.connectors.owners import Owners
from kvproof.live.connectors.worker import ConnectorWorker
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.store_client import StoreClient
from kvproof.live.observer import shown
from kvproof.live.observer.hooks import hooked
from kvproof.live.observer.kept import named, reached
from kvproof.live.observer.view import HashedTokens
from kvproof.live.step_output import sampled
from kvproof.model.facts.connectors import (
    Announced,
    AskedAfterReset,
    Begun,
    BlocksKept,
    Fact,
    LoadEnded,
    LoadFailed,
    LoadOver,
    Matched,
    Owed,
    Promised,
    Remembered,
    RequestsEnded,
    RequestsGone,
    SendEnded,
    SlotsRead,
    StoreReset,
    Unpublished,
)
from kvproof.model.plans.connector import LOAD_TIERS, ROLES, ConnectorPlan
from kvproof.model.state import SAMPLED, Table


class LastReset(NamedTuple):
    """The last reset of the connector's cache: whether the engine was `idle`, whether the connector
    said that it was `done`, and the number of steps with tokens before it."""

    idle: bool
    done: bool
    steps: int


class ObservedEngine:
    """An engine of a plan, whose scheduler and steps somebody else makes. The kit's workers execute
    the steps. `facts` has the facts since `take_facts` was last called, and `counts` what a pair of
    base and head compares (`gate.difference.record.COUNTED`). The connector `keeps_prompts` by the
    word of its author. The engine is one of several (`paired`). An engine that only `encodes` has
    no prefix cache."""

    dead = False

    def __init__(
        self,
        plan: ConnectorPlan,
        clock: Clock,
        keeps_prompts: bool = False,
        paired: bool = False,
        encodes: bool = False,
    ) -> None:
        self.plan, self.cfg, self.clock, self.paired = plan, plan.engine, clock, paired
        self.encodes = encodes
        self.scheduler: Any = None
        self.earlier = EarlierRequests(plan.engine, keeps_prompts)
        self.earlier_loads = EarlierLoads()
        self.facts: list[Fact] = []
        self.arrived = self.steps = self.steps_with_tokens = self.failed_loads = 0
        self.last_reset: LastReset | None = None
        self.computed_of: dict[str, tuple[int, bool]] = {}
        self.forgets = self.refuses = False
        self.given_up: dict[str, int] = {}
        self.requests: list[Any] = []
        self.hashed = HashedTokens(plan.engine.hash_block_size, plan.engine.hash_lookahead_tokens)
        self.announced: dict[tuple[Any, ...], int] = {}
        self.queued: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.answers: list[object] = []
        self.invalid: defaultdict[str, set[int]] = defaultdict(set)
        self.failing: set[str] = set()
        self.returned: dict[str, dict[str, Any]] = {}
        self.last_step_of: dict[str, int] = {}
        self.sent: set[str] = set()
        self.want_no_tier: set[str] = set()
        caches = plan.engine.prefix_caching and not encodes
        self.lookups = LookUps(plan.engine, caches)
        self.owners = Owners(plan.engine, plan.local, plan.stripes)
        self.prompts = Prompts(self.owners.prompts, plan.engine, caches)

    def observe(self, scheduler: Any) -> None:
        """Make the workers of a new scheduler, make both sides of the connector known to each
        other, and observe the connector from now on."""
        self.scheduler = self.owners.scheduler = scheduler
        connector = scheduler.connector
        self._listen(connector)
        self.tiers = listen(connector, self.facts, self.counts, self.want_no_tier)
        parts = self.plan, scheduler, self.owners, self.facts, self.clock
        self.workers = [ConnectorWorker(*parts, rank) for rank in range(self.plan.ranks)]
        self.worker = self.workers[0]
        self.pools = shown.pools(scheduler)
        self.reports = self._aggregator() if self.plan.ranks > 1 else None
        adapt.introduce([worker.connector for worker in self.workers], connector)

    def arrive(self, request: Any, prompt: str, beside: str = "") -> None:
        """Record that the engine is to get a request with this prompt, in which the letter of an
        image stands at each of its positions. Its KV depends on what is `beside` too."""
        self.owners.prompts[request.request_id] = prompt
        self.owners.beside[request.request_id] = f"{beside}:" if beside else ""
        self.last_step_of[request.request_id] = self.steps
        asked = request.kv_transfer_params or {}
        if asked.get("do_remote_prefill") or ROLES & asked.keys():
            self.sent.add(request.request_id)
        if asked.get(LOAD_TIERS) == []:
            self.want_no_tier.add(request.request_id)
        self.arrived += 1
        self.requests.append(request)

    def learned(self) -> HashedTokens:
        """The tokens of all block hashes until now."""
        for request in self.requests:
            self.hashed.learn(request)
        return self.hashed

    def begin_again(self, *, another: bool) -> None:
        """Record that another process starts an engine, perhaps of `another` model."""
        for known in (
            *(self.invalid, self.given_up, self.failing, self.announced),
            *(self.last_step_of, self.sent),
        ):
            known.clear()
        self.earlier.restart(another=another)
        self.earlier_loads = EarlierLoads()
        self.last_reset = None

    def note_unpublished(self) -> None:
        """Record how many events of the connector wait for a step. They are taken out of it for
        this, and published with the next step as if they were still there."""
        self.queued += self._queued_events() or ()
        self.facts.append(Unpublished(len(self.queued)))

    def _note_ended(self) -> None:
        self.facts.append(RequestsEnded(self.arrived - len(self.scheduler.requests)))

    def note_owed(self, steps: int = 0) -> None:
        """Record as facts what an engine without work still owes. `steps` is the number of steps of
        an engine that has no request and steps without end."""
        if self.dead:
            return
        self.settle()
        self.facts.extend(self.lookups.facts(self.arrived, self.failed_loads))
        if self.plan.hidden:
            self.clock.run()  # who reads a file waits until it is written
            self.facts.extend(hidden.saved(self.returned, self.owners, self.worker.caches))
            self.returned.clear()
        self.facts.extend(self.worker.encoder.owed())
        self.facts.extend(tier.idle() for tier in self.tiers)
        self.facts.extend(self._gone())
        self.facts.append(Owed(self._taken(), tuple(self.scheduler.requests), steps))
        free = sum(pool.get_num_free_blocks() for pool in self.pools)
        self.counts["free blocks at the end"] = free
        self._note_ended()

    def _gone(self) -> Iterator[RequestsGone]:
        """What each side of the connector remembers of the requests that the engine has no more."""
        gone = self.last_step_of.keys() - self.scheduler.requests.keys()
        # A worker learns of the end of a request in the next step, and steps may overlap.
        lasts = self.plan.copies.steps + self.cfg.steps_in_flight
        sides = self.scheduler.connector, *(worker.connector for worker in self.workers)
        for side in sides if gone else ():
            if not any(reached(side)):
                continue  # cannot be judged: it is no code of vLLM
            found = tuple(
                Remembered(where, name, self.steps - self.last_step_of[name], name in self.sent)
                for where, name in sorted(set(named(side, gone)))
            )
            yield RequestsGone(len(gone), found, lasts, self.clock.stands)

    def _taken(self) -> int:
        """The number of blocks that are not free, without the null block."""
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return self.cfg.num_blocks - 1 - free

    def take_facts(self) -> list[Fact]:
        """The facts since the last call."""
        facts = self.facts[:]
        self.facts.clear()
        return facts

    def answered(self, outputs: Any) -> None:
        """Record what the engine answers to clients (`EngineCoreOutputs`)."""
        self.counts["blocks held after requests"] += shown.held_after_end(self.scheduler)
        for each in outputs.outputs:
            self.counts["last steps of requests"] += self.steps * (each.finish_reason is not None)
            if each.kv_transfer_params:
                self.returned[each.request_id] = each.kv_transfer_params
            self.facts.extend(self.prompts.reported(each))
        stats = outputs.scheduler_stats
        if stats is None:
            return
        self.lookups.count("engine's", stats.prefix_cache_stats)
        if stats.connector_prefix_cache_stats is not None:
            self.lookups.count("connector's", stats.connector_prefix_cache_stats)

    def execute(
        self, output: Any, parts: list[ComputedPart], tables: Mapping[str, tuple[Table, ...]]
    ) -> dict[str, Any]:
        """Carry out the parts of a step on all workers. Returns what their connectors report
        together, as vLLM's executor does, by the fields of a `ModelRunnerOutput`."""
        self._note_begun(output)
        self._note_short()
        begin = len(self.facts)
        self.steps += 1
        self.last_step_of.update(dict.fromkeys(self.scheduler.requests, self.steps))
        self.steps_with_tokens += bool(output.num_scheduled_tokens)
        for new in output.scheduled_new_reqs:
            skips = self.scheduler.requests[new.req_id].skip_reading_prefix_cache
            self.facts.append(Begun(new.req_id, new.num_computed_tokens, bool(skips)))
        results = [w.execute(self._sent(output), parts, tables) for w in self.workers]
        result = results[0]
        if self.reports is not None:
            together = self.reports.aggregate([sampled((), {}, **each) for each in results])
            result["kv_connector_output"] = together.kv_connector_output
        self.facts.extend(StoreClient.take_stored())
        moved = result.get("kv_connector_output")
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

    @property
    def running(self) -> list[str]:
        """The requests that have not ended, in the order of their arrival."""
        return [n for n, r in self.scheduler.requests.items() if not r.is_finished()]

    @property
    def idle(self) -> bool:
        """Whether the engine has nothing to do."""
        return not self.scheduler.has_requests()

    def settle(self) -> None:
        """Record that the engine is idle, if it is: it has stored the prompts of ended requests."""
        if self.idle:
            self.earlier.settle()
            self.given_up.clear()

    def _note_begun(self, output: Any) -> None:
        """Record the tokens that a step computes, and the number of tokens with which each request
        begins that did not run before this step."""
        begun = Batch.begun(output)
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            self._note_computed(request, min(request.num_computed_tokens, request.num_tokens))
            if name in begun:
                computed = request.num_computed_tokens - tokens
                self.prompts.begin(name, request.num_prompt_tokens, computed)

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
        transfer = self.scheduler.vllm_config.kv_transfer_config
        several = "connectors" in transfer.kv_connector_extra_config
        sizes = len(event.block_hashes), len(event.token_ids or ()), event.block_size
        self.facts.append(Announced(*sizes, size, len(self.cfg.groups), *again, several))
        self.facts.extend(carried(event, self.learned()))

    def _listen(self, connector: Any) -> None:
        """Record the answers of the scheduler side of the connector."""
        asked = "get_num_new_matched_tokens", "request", "num_computed_tokens"
        hooked(connector, *asked, after=self._matched)
        allocated = "update_state_after_alloc", "request", "num_external_tokens"
        hooked(connector, *allocated, before=self._promised)
        for name in ("request_finished", "request_finished_all_groups"):
            if hasattr(connector, name):
                hooked(connector, name, "request", after=self._finished)
        hooked(connector, "reset_cache", before=self._resets, after=self._was_reset)
        self._queued_events = connector.take_events
        connector.take_events = self._take_events

    def _matched(self, answer: tuple[int | None, bool], request: Any, computed: int) -> None:
        tokens, later = answer
        name, whole = request.request_id, request.num_tokens
        self.computed_of[name] = computed, later
        self.lookups.look_up(request, computed)
        skipped = bool(request.skip_reading_prefix_cache)
        self._note_match(Matched(name, computed, tokens, later, whole, skipped))

    def _promised(self, request: Any, tokens: int) -> None:
        self.lookups.admit(request, tokens)
        if not tokens:
            return
        name = request.request_id
        start, later = self.computed_of[name]
        known = self.owners.beside[name], self.owners.prompts[name]
        twice = self.earlier_loads.begin(name, *known, start, start + tokens, self.owners.loads)
        load = Promised(name, start, tokens, later, request.skip_reading_prefix_cache, *twice)
        self.owners.loads[name] = load
        self.facts.append(load)
        self.prompts.promise(name, start, tokens)

    def _finished(self, answer: tuple[bool, Any], request: Any) -> None:
        well = request.status.name in ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")
        if well:  # the last token of an answer is not computed
            self._note_computed(request, request.num_tokens - 1)
        self.earlier.end(request.request_id, well=well)
        if answer[0]:
            self.facts.append(BlocksKept(request.request_id))

    def _resets(self) -> None:
        self.facts.append(StoreReset())
        self.clock.order.forget_copies()
        self.announced.clear()
        self.earlier.reset(self.scheduler.requests)

    def _was_reset(self, answer: object) -> None:
        self.forgets, self.refuses = answer is True, answer is False

    def _take_events(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The events of the connector, with those that were taken out of it before."""
        answer = [*self.queued, *(self._queued_events(*args, **kwargs) or ())]
        self.queued.clear()
        self.answers.append(sorted(map(shown.plain, answer), key=repr))
        blocks = (len(getattr(each, "block_hashes", ())) or 1 for each in answer)
        self.counts["events published"] += sum(blocks)
        for event in answer:
            self._note_event(event)
        return answer


def _without(facts: Sequence[Fact], spared: set[str]) -> Iterator[Fact]:
    """The facts of a step without what requests loaded or read wrong whose load failed: it cannot
    be judged, as vLLM computes these tokens again, and nothing of the step reaches the answer."""
    for fact in facts:
        if isinstance(fact, SlotsRead):
            wrong = tuple(each for each in fact.wrong if each.request not in spared)
            yield fact._replace(wrong=wrong)
        elif not (isinstance(fact, LoadOver) and fact.request in spared):
            yield fact
