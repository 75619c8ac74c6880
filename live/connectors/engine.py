"""One engine under test: the real engine core with the connector, and the workers of the kit."""

import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kvproof.live import blame, build
from kvproof.live.connectors.listeners import Opened
from kvproof.live.connectors.observed import LastReset, ObservedEngine
from kvproof.live.core.engine import PlannedCore, core_of
from kvproof.live.core.executor import Executor
from kvproof.live.death import death_of, place
from kvproof.live.encoder_settings import only_encodes
from kvproof.live.endless import watched
from kvproof.live.fakes import streams
from kvproof.live.fakes.clock import Clock
from kvproof.live.observer import shown
from kvproof.model import state
from kvproof.model.arithmetic import counts
from kvproof.model.facts.connectors import (
    Called,
    MayFail,
    ResetAnswered,
    Unfreed,
    Waits,
)
from kvproof.model.plans.connector import (
    LOAD_TIERS,
    Another,
    ConnectorPlan,
    SubmitRequest,
    TransferParams,
    Who,
)

LAYERS = 2
"""The number of layers of each group. With more than one, a load that ends after the first layer is
found."""

ENDS_WELL = ("stop", "length")
"""The reasons with which vLLM ends a request that nobody has aborted and that has not failed."""


class DrivenEngine(ObservedEngine):
    """One engine under test. The engine serves `another` model than that of the plan, or one with
    another type of values. An engine of several (`paired`) continues to step while it keeps blocks
    for another engine. Its loop `stands` for so many steps; until then, messages are in its
    `inbox`. Each request was `seen` in some state, and is `still` in it since so many steps."""

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
        self.first = build.ServedModel(
            dtype=plan.dtypes[0],
            latent=plan.latent,
            uneven=plan.uneven,
            hidden=plan.hidden,
            encodes=only_encodes(connector["kv_connector_extra_config"]),
        )
        super().__init__(plan, clock, keeps_prompts, paired, self.first.encodes)
        self.connector, self.replica = connector, replica
        self.stands = 0
        self.seen: dict[str, Any] = {}
        self.still: dict[str, int] = {}
        self.paused = self.pauses_new = False
        self.inbox: deque[Callable[[], None]] = deque()
        self.served = self.first.changed(another, plan.dtypes)
        self.opened = Opened()
        try:
            with watched():
                self._begin()
        except BaseException:
            self.opened.note()
            self.opened.remove()
            raise

    def _scheduler(self) -> Any:
        plan, of_rank = self.plan, build.ALL_OF_IT
        if plan.tensor:
            of_rank = self.served.on_rank(plan.ranks, plan.parts_of_states)
        return build.scheduler(
            plan.engine,
            plan.load_failure,
            connector=self.connector,
            events=not plan.without_events,
            shape=build.Shape(
                *(LAYERS, plan.local, plan.ranks, plan.stripes, plan.every_state),
                *(of_rank, self.served),
            ),
            replica=self.replica,
            make=self._scheduler_of,
            chosen=plan.config_options,
        )

    def _scheduler_of(self, config: Any, caches: Any, _sizes: Mapping[str, int]) -> Any:
        """The scheduler of a new engine core. An engine of a pair is taken to serve others too, so
        it continues to step while it keeps blocks of an ended request."""
        cfg = self.cfg
        executor = self.executor = Executor(cfg.drafts, cfg.steps_in_flight, cfg.overlaps)
        executor.planned, executor.workers, executor.executed = caches, self, self.answers
        executor.accepts = self.plan.accepted
        self.core = core_of(config, executor, PlannedCore)
        scheduler = self.core.scheduler
        if self.paired:
            has_requests = scheduler.has_requests
            scheduler.has_requests = lambda: bool(has_requests() or scheduler.requests)
        return scheduler

    def _begin(self) -> None:
        self.owners.model = self.served.unlike(self.first)
        self.observe(self._scheduler())
        self.opened.note()

    @property
    def in_flight(self) -> bool:
        """Whether the output of a step has not arrived."""
        return bool(self.core.batch_queue)

    # What the environment may do.

    def restart(self, another: Another = "") -> None:
        """Shut the engine down if no request runs, and start one in another process. Stored
        prefixes may be offered to the new engine, unless it serves `another` model or type of
        values."""
        if self.dead or self.running or self.in_flight:
            return
        self.end()
        self._call(self._start, another)

    def _start(self, another: Another) -> None:
        self.clock.begin_again()
        streams.begin()
        self.begin_again(another=bool(another))
        self.served = self.served.changed(another, self.plan.dtypes)
        self.opened.remove()
        self.opened = Opened()
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
        request = build.request(
            self.cfg,
            known,
            transfer or _asked(arrives.asks),
            arrives.priority,
            self.arrived,
            more=_arguments(arrives),
        )
        request.skip_reading_prefix_cache = arrives.computes_all
        request.sampling_params.skip_reading_prefix_cache = arrives.computes_all
        self.arrive(request, arrives.prompt, arrives.beside)
        self._send(self.core.add_request, request)

    def abort(self, name: str) -> None:
        """Abort a request, as its client disconnects: while a step runs, if one does."""
        tell = self.core.aborts_queue.put_nowait if self.in_flight else self.core.abort_requests
        self._send(tell, [name])

    def reset(self, running: bool = False, connector: bool = False) -> None:
        """Reset the engine's prefix cache, if no request runs; with `running`, preempt the running
        requests first. The connector's cache is reset too only with `connector`."""
        if self.stands:
            self.inbox.append(lambda: self.reset(running, connector))
            return
        idle = not (self.scheduler.has_requests() or self.scheduler.requests or self.in_flight)
        self.forgets = self.refuses = False
        self._call(self._reset, running, connector)
        if connector:
            self.last_reset = LastReset(idle, self.forgets, self.steps_with_tokens)

    def _reset(self, running: bool, connector: bool) -> None:
        """Reset the caches. An exception of the connector's reset goes to the caller, and the
        engine continues."""
        idle = not self.has_work
        requests = len(self.scheduler.requests)
        answer = ResetAnswered(False, connector, idle, requests, self._taken())
        try:
            done = self.scheduler.reset_prefix_cache(
                reset_running_requests=running, reset_connector=connector
            )
            answer = answer._replace(done=done is True, refused=self.refuses)
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

        self.paused, self.pauses_new = True, new
        state = PauseState.PAUSED_NEW if new else PauseState.PAUSED_ALL
        self._send(self.scheduler.set_pause_state, state)

    def resume(self) -> None:
        """End a pause."""
        from vllm.v1.core.sched.interface import PauseState

        self.paused = self.pauses_new = False
        self._send(self.scheduler.set_pause_state, PauseState.UNPAUSED)

    def step(self) -> None:
        """Let the engine core take a step, if the engine says that it has work. A loop that stands
        does nothing, and time passes."""
        if self.stands:
            self.clock.tick()
            self.stands -= 1
            if not self.stands:
                self.go_on()
        elif self.has_work:
            self._call(self._step)
        else:
            self.settle()

    def stand(self, who: Who, steps: int) -> None:
        """Let the engine's loop, or the threads behind the connector, stand for so many steps."""
        if who == "store":
            self.clock.stand(steps)
        else:
            self.stands += steps

    def go_on(self) -> None:
        """Let a loop that stands go on, and take the messages that have come."""
        self.stands = 0
        while self.inbox:
            self.inbox.popleft()()

    @property
    def must_go_on(self) -> bool:
        """Whether a request goes on under a pause: no new one is scheduled, and it holds blocks."""
        return self.pauses_new and any(any(self.owners.tables(name)) for name in self.running)

    @property
    def idle(self) -> bool:
        """Whether the engine has nothing to do, and no step is in flight."""
        return super().idle and not self.in_flight

    @property
    def has_work(self) -> bool:
        """Whether the engine's loop continues."""
        has_work = self.scheduler.has_requests() or self.in_flight or bool(self.inbox)
        return not self.dead and has_work

    def note_waiting(self, steps: int, endless: bool, idle_max: int) -> None:
        """Record as facts the requests that are left after `steps` steps without any change or, if
        `endless`, with changes that do not end; under a pause, of those that hold blocks. One with
        blocks that has not changed for more than `idle_max` steps only waits. An ended request
        among them waits for nothing, and still has blocks."""
        free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        requests = self.scheduler.requests
        holders = {name for name in requests if any(self.owners.tables(name))}
        found = []
        for name, request in requests.items():
            if self.paused and name not in holders:
                continue
            lacks, others = self._lacks(request), tuple(sorted(holders - {name}))
            still = self.still[name] if endless and name in holders else 0
            number, goes_round = (still, False) if still > idle_max else (steps, endless)
            found.append(
                Waits(name, request.status.name, number, *lacks, free, others, endless=goes_round)
            )
        self._note_ended()
        first = next((f.request for f in found if f.request in holders and f.lacks_copies), "")
        for each in found:
            if requests[each.request].is_finished():
                self.facts.append(Unfreed(each.request, each.status, steps))
            else:
                behind = "" if each.request in holders else first
                self.facts.append(each._replace(behind=behind))

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

    def shown(self) -> list[object]:
        """What vLLM answered since the last call and, while the engine lives, its state."""
        answers = self.answers[:]
        self.answers.clear()
        if self.dead:
            return answers
        return [*answers, *shown.state(self.scheduler, self.pools, self.learned().named)]

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

    # What it does.

    def _step(self) -> None:
        encoder = self.worker.encoder
        known = dict(self.scheduler.requests) if encoder.alone else {}
        answered, executed = self.core.step_fn()
        self.core.post_step(executed)
        self.answers.append(shown.plain(answered))
        for outputs in (answered or {}).values():
            self.answered(outputs)
            for each in outputs.outputs if known else ():
                if str(each.finish_reason) in ENDS_WELL:
                    self.facts.append(encoder.ended(known[each.request_id]))

    def progress(self) -> object:
        """The values that change while the engine makes progress."""
        of_request = {
            name: (each.status, each.num_computed_tokens, each.num_tokens)
            for name, each in self.scheduler.requests.items()
        }
        self.still = {
            name: self.still.get(name, 0) + 1 if each == self.seen.get(name) else 0
            for name, each in of_request.items()
        }
        self.seen = of_request
        return (
            [*of_request.items()],
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            sorted(self.owners.loads),
            self.stands > 0,
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
            self.executor.spare(error)
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


def _asked(asks: TransferParams) -> dict[str, Any]:
    """The `kv_transfer_params` of a request with these demands. Of tiers it gives a list."""
    return {name: [] if name == LOAD_TIERS and not number else number for name, number in asks}


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
