"""One live engine: the real scheduler, the symbolic worker, and the adapter's records."""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.live import adapt, both, build, step_output
from kvproof.live.driver.worker import Worker
from kvproof.live.observer import shown, view
from kvproof.live.observer.kept import Leftovers
from kvproof.live.observer.recorder import Recorder
from kvproof.model import config, state
from kvproof.model.config.extra_keys import with_no_token_dropped
from kvproof.model.environment import acceptance, arrivals, stores
from kvproof.model.events import Admit
from kvproof.model.kv_events import Report
from kvproof.model.step import Admission, Copy, Effects, Read

if TYPE_CHECKING:
    from kvproof.live.observer.kv_events import Listener

DRAFT_ID = ord(state.DRAFT)


class Node:
    """One engine of the cluster."""

    def __init__(
        self, cfg: config.EngineConfig, load_failure: str, turns: bool, pushes: bool
    ) -> None:
        self.cfg = cfg
        self.scheduler = build.scheduler(cfg, load_failure, turns, pushes)
        self.names = view.Names(cfg)
        self.recorder = Recorder(cfg, self.scheduler, self._cached)
        self.worker = Worker(cfg)
        self.nixl: Any = None
        self.connector, self.store = both.connectors(cfg, self.scheduler.connector)
        self.known: dict[str, state.Request] = {}
        if self.store is not None:
            self.store.known = self.known
        self.arrived = 0
        self.output: SchedulerOutput | None = None
        self.answers: list[object] = []
        self.queue: deque[tuple[SchedulerOutput, tuple[state.Flight, ...]]] = deque()
        reports = () if cfg.kv_events else None
        self.engine = state.Engine(cfg.name, (), (), memory=self.worker.memory, reports=reports)
        self.listener = self._listener() if cfg.kv_events else None
        self.leftovers = Leftovers(self.scheduler, cfg.name)
        self.refresh()

    def _listener(self) -> "Listener":
        from kvproof.live.observer.kv_events import Listener

        return Listener(self.scheduler, self.names)

    def owns(self) -> tuple[object, ...]:
        """The objects of vLLM that belong to this engine only."""
        return self.scheduler, self.scheduler.kv_cache_manager, self.scheduler.connector, self.nixl

    def _cached(self) -> state.Cached:
        return view.cached(self.scheduler, self.names)

    def add(self, known: state.Request, params: dict[str, Any] | None, job: config.Job) -> None:
        """Add a request, whole or as the first part of a session. P computes only that part."""
        first = bool(job.parts) and self.cfg.role != "prefill"
        keys = build.extra_keys(job.extra_key)
        request = build.request(
            self.cfg, known, params, job.priority, self.arrived, first, keys, job.reports_hits
        )
        self.arrived += 1
        self.known[known.id] = known
        self.scheduler.add_request(request)

    def go_on(self, job: config.Job) -> None:
        """Continue a session: add the next part, or the request that ends the session."""
        paused = self.engine.request(job.name)
        part = arrivals.next_part(paused, job)
        update = paused._replace(prompt=part or state.SAMPLED)
        keys = build.extra_keys(job.extra_key)
        last = build.request(self.cfg, update, None, job.priority, self.arrived, bool(part), keys)
        self.arrived += 1
        self.scheduler.add_request(last)
        known = arrivals.with_part(paused, part)
        self.known[job.name] = self.known[job.name]._replace(
            prompt=with_no_token_dropped(known.prompt),
            submitted_prompt_tokens=known.submitted_prompt_tokens,
        )

    def schedule(self) -> Effects:
        """Take one real step: the scheduler chooses, and the worker executes. The output joins the
        queue of outputs that have not reached the scheduler."""
        self.recorder.start()
        before = self.engine
        adapt.order_ended(self.scheduler)
        output = self.scheduler.schedule()
        self.answers.append(shown.plain(output))
        admissions = tuple(self._admission(*each) for each in self.recorder.admitted)
        self.refresh()
        requests = {r.id: r for r in self.engine.requests}
        if self.store is not None:
            loads = both.metadata(self.cfg, output.kv_connector_metadata).store.loads
            self.worker.load(loads, requests)
        reads, shares = self.worker.execute(output, requests, self._awaited(before, output))
        self.output = output
        if shares:
            self.queue.append((output, shares))
        if self.cfg.overlaps:
            self._keep({s.request: before.unverified(s.request) + s.ahead for s in shares})
        copies = tuple(
            Copy(self.cfg.name, *pair)
            for pair in adapt.block_copies(output, self.cfg.partial_block_hits)
        )
        return Effects(
            reads,
            admissions,
            tuple(self.recorder.event.allocations),
            copies=copies,
            places=tuple(sorted(self.worker.places)),
            zeroed=adapt.zeroed(output),
            kept=self.leftovers.stepped(),
            refused=tuple(self.recorder.refused.values()),
        )

    def _awaited(self, before: state.Engine, output: SchedulerOutput) -> dict[str, int]:
        """The requests whose tokens in this step the worker cannot know yet, because a step in
        flight may reject drafts. With the most draft tokens that it may reject."""
        return {
            name: before.unverified(name)
            for name in output.num_scheduled_tokens
            if acceptance.awaits(self.cfg, before, name)
        }

    def _admission(self, admitted: Admit, cached: state.Cached) -> Admission:
        """Make the admission that the recorder noted."""
        live = self.scheduler.requests[admitted.request]
        known = self.known[admitted.request]
        tokens = known.prompt[: live.num_prompt_tokens]
        tokens += state.SAMPLED * len(live.output_token_ids)
        self.known[admitted.request] = known._replace(
            hit=admitted.local_hit, external=admitted.external
        )
        return Admission(
            self.cfg.name,
            admitted.request,
            self.names.as_hashed(live, tokens),
            known.route,
            admitted.local_hit,
            admitted.external,
            cached,
            dropped="" if live.output_token_ids else known.prompt[live.num_prompt_tokens :],
        )

    def nothing_scheduled(self) -> None:
        """Send the output of a step that computes nothing to the scheduler."""
        self._hand_in(self.output or SchedulerOutput.make_empty(), (), {})

    def complete(
        self, accepted: Mapping[str, int] | None = None, failed: str = ""
    ) -> dict[str, dict[str, Any]]:
        """Send the oldest step's output to the scheduler. `accepted` has the number of accepted
        draft tokens by request; `failed` is the request whose load from the store failed, if any.
        Returns the `kv_transfer_params` of finished requests."""
        output, shares = self.queue.popleft()
        invalid = self._erase_load(failed) if failed else ()
        if not self.cfg.overlaps:
            ran = (self.engine.request(s.request) for s in shares if s.request != failed)
            self._keep({r.id: max(r.computed - len(r.tokens), 0) for r in ran})
        right = accepted or {}
        steps = view.in_flight(self.scheduler, [shares])
        ended = tuple(
            s._replace(fate=state.VOID) if s.request == failed else s
            for s in (steps[0] if steps else ())
        )
        self._accept(ended, right)
        return self._hand_in(output, shares, right, invalid)

    def _kept(self, right: Mapping[str, int]) -> dict[str, int]:
        """The number of accepted draft tokens that stay in a session, by session: its next part
        follows the computed tokens of an answer that is not longer than it may be."""
        left = {r.id: max(r.max_tokens - len(r.output) - 1, 0) for r in self.engine.requests}
        live = self.scheduler.requests
        resumable = (name for name in right if name in live and live[name].resumable)
        return {name: min(right[name], left[name]) for name in resumable}

    def _accept(self, shares: tuple[state.Flight, ...], right: Mapping[str, int]) -> None:
        """Send the numbers of accepted draft tokens of a step to the worker (`right`, by request).
        The tokens of later steps are left out."""
        requests = {}
        right = {**right, **self._kept(right)}
        for request in self.engine.requests:
            behind = sum(
                s.tokens for _, step in self.queue for s in step if s.request == request.id
            )
            requests[request.id] = request._replace(computed=request.computed - behind)
        self.worker.accept(requests, shares, right)
        rejected = {
            s.request: s.ahead - right.get(s.request, 0) for s in shares if s.fate == state.COUNTS
        }
        for index, (output, step) in enumerate(self.queue):
            placed = tuple(
                self.worker.placed(self.engine.request(s.request), s, rejected[s.request])
                if self.cfg.drafts and s.request in rejected
                else s
                for s in step
            )
            self.queue[index] = output, placed

    def carry_out(self, ended: tuple[state.Flight, ...]) -> tuple[Read, ...]:
        """Execute the parts of the next step that had to wait for the output of the ended step."""
        if not (self.cfg.drafts and self.queue and ended):
            return ()
        self.refresh()
        sampled = {s.request for s in ended if s.samples and s.fate == state.COUNTS}
        shares = [
            s for s in self.engine.steps[0] if s.request in sampled and s.fate == state.COUNTS
        ]
        return self.worker.run({r.id: r for r in self.engine.requests}, shares)

    def _erase_load(self, name: str) -> tuple[int, ...]:
        """Erase the load of a request, which failed. Returns the block ids of the failed load."""
        request = self.engine.request(name)
        loaded = request.external // self.cfg.groups[0].block_size
        blocks = stores.missing(self.cfg, request)[:loaded]
        self.engine = stores.spoiled(self.cfg, self.engine, request)
        self.worker.memory = self.engine.memory
        self.known[name] = self.known[name]._replace(external=0)
        if self.store is not None:
            self.store.stored = self.engine.stored
        return blocks

    def _hand_in(
        self,
        output: SchedulerOutput,
        shares: tuple[state.Flight, ...],
        accepted: Mapping[str, int],
        invalid: tuple[int, ...] = (),
    ) -> dict[str, dict[str, Any]]:
        names = [share.request for share in shares]
        served = [self.scheduler.requests[n] for n in names if n in self.scheduler.requests]
        ends = {
            live.request_id: stops - len(live.output_token_ids)
            for live in served
            if (stops := self.known[live.request_id].stops)
        }
        result = self.scheduler.update_from_output(
            output,
            step_output.sampled(shares, accepted, ends, **adapt.failed_loads(invalid)),
        )
        self.answers.append(shown.plain(result))
        for live in served:  # a request that ends now may have filled a block
            self.names.learn(live, view.text_of(live, self.known[live.request_id]))
        if self.cfg.drafts and names and not self.cfg.overlaps:
            drafts = step_output.drafted(names, self.cfg.drafts, DRAFT_ID)
            self.scheduler.update_draft_token_ids(drafts)
        return {
            o.request_id: o.kv_transfer_params
            for outputs in result.values()
            for o in outputs.outputs
            if o.kv_transfer_params
        }

    def _keep(self, doubtful: Mapping[str, int]) -> None:
        """Store the tokens that a step has computed for these requests, without their last
        `doubtful` tokens, which are drafts."""
        if self.store is None:
            return
        for name, count in doubtful.items():
            computed = self.scheduler.requests[name].num_computed_tokens
            tokens = self.engine.request(name).tokens
            self.engine = stores.keeping(self.cfg, self.engine, tokens, computed, count)
        self.store.stored = self.engine.stored

    def report(self, **finished: set[Any]) -> None:
        """Send the connector worker's reports of finished transfers to the scheduler, in a step
        that computes nothing."""
        result = self.scheduler.update_from_output(
            SchedulerOutput.make_empty(),
            step_output.sampled((), {}, kv_connector_output=adapt.finished(finished)),
        )
        self.answers.append(shown.plain(result))

    def take_reports(self) -> tuple[Report, ...]:
        """The KV events that the engine reported since the last call."""
        return () if self.listener is None else self.listener.reports()

    @property
    def keeps_events(self) -> bool:
        """Whether KV events wait to be published, as of the last call of `take_reports`."""
        return self.listener is not None and bool(self.listener.waiting)

    def shown(self) -> list[object]:
        """What vLLM answered since the answers were cleared, its events, whether it says that it
        has work, and its queues. A dead engine says nothing of itself."""
        if self.engine.dead:
            return self.answers
        events = self.listener.news if self.listener is not None else ()
        own = self.scheduler.has_requests(), shown.queues(self.scheduler)
        return [*self.answers, *map(shown.plain, events), *own]

    def note_stale(self, fate: str) -> None:
        """Record the fate of the outputs in flight of the requests that were preempted since the
        last call. It is used where vLLM itself does not count them."""
        preempted, self.recorder.preempted = self.recorder.preempted, set()
        if preempted and self.cfg.overlaps:
            self.queue = deque(
                (output, tuple(view.stale(s, preempted, fate) for s in shares))
                for output, shares in self.queue
            )

    def refresh(self) -> None:
        """Read the scheduler again."""
        self.note_stale(state.LATE)
        before = self.engine
        after = view.engine(self.scheduler, before, self.names, self.known)
        steps = tuple(shares for _, shares in self.queue)
        if self.cfg.overlaps:
            after = after._replace(steps=view.in_flight(self.scheduler, steps))
        else:
            after = after._replace(
                step=tuple((s.request, s.tokens) for s in steps[0]) if steps else None
            )
        if self.cfg.drafts and self.cfg.overlaps:
            after = view.with_placeholder_drafts(self.scheduler, after, self.worker.states)
        elif self.cfg.drafts:
            output = self.queue[0][0] if self.queue else None
            after = view.with_drafts(self.scheduler, after, output, self.worker.states)
        self.engine = after._replace(memory=self.worker.memory)
        if not after.requests and not self.queue:
            self.leftovers.idle()
