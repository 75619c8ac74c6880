"""Plays a plan: the loop runs by itself, and messages come at the moments of the plan. When the
plan is over, any pause and all transfers end, and the loop runs until it waits."""

import functools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from kvproof.live import blame, contract_check
from kvproof.live.core import front, ready
from kvproof.live.core.engine import (
    ALONE,
    PLENTY_BYTES,
    Core,
    Engine,
    LoopEnd,
    Messages,
    text_of,
)
from kvproof.live.core.grammars import Grammars
from kvproof.live.core.layers import config_of
from kvproof.live.core.readers import Statistics
from kvproof.live.death import death_of
from kvproof.live.endless import watched
from kvproof.live.observer import shown
from kvproof.live.options import TO_DECODE
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import (
    OWN,
    Call,
    ClientRequest,
    Did,
    LoopWait,
    Played,
    SizeKnown,
    StepSize,
)
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import (
    LENGTH,
    Arrive,
    Cancel,
    Compile,
    More,
    Pause,
    Reset,
    Resume,
    Send,
    Sleep,
    Stop,
    Wake,
)

BLOCKS_OF_PREFILL = 1000
"""The number of blocks of a prefill node, in which a prompt of each length has room."""

NODES_KEPT = 64
"""The number of prefill nodes whose offers are kept."""

NEXT_PART = 7
"""The token of each later part of a session."""

BEHIND_MAX = 2
"""The number of messages to clients by which the thread that sends them may be behind."""

ELSEWHERE = "The loop of this vLLM gets messages elsewhere than from its queue"
"""Nobody sees which ones, and so none can be told to be lost, and no pause to have begun."""

LIFTS_MAX = 3
"""How often the last pause is ended, after the end of the plan, where the engine refuses it."""

BUSY_MAX = 200
"""The number of moments without an answer, after the end of the plan, after which the loop counts
as endless."""


class Client:
    """The client of one request, and what it knows of the request. `sent_tokens` are those of the
    prompt and of the answers that it asked for, in all parts of a session; the engine took so many
    `parts`. The engine has read so many messages with the request (`read`), of which its loop `got`
    so many. The session is `open` until the client says that no more parts come. `steps_after` is
    the number of steps that computed the request after the engine knew the client to be `gone`.
    From a model that `pools` the client gets no token but a vector, which counts as one."""

    def __init__(self, sent: Send, pools: bool = False) -> None:
        self.sent = sent
        self.taken = self.gone = False
        self.tokens = self.parts = self.steps_after = self.read = self.got = 0
        ends = sent.stops or sent.answer, sent.repeats or sent.answer
        self.answer = 1 if pools else min(*ends, sent.answer)
        self.sent_tokens = len(sent.tokens) + sent.answer
        self.open = sent.stays
        self.ends: list[str] = []

    @property
    def so_far(self) -> ClientRequest:
        """The request as its client knows it."""
        gone = self.gone or self.sent.refused
        return ClientRequest(
            *(self.sent.request, self.answer, gone, self.tokens, (*self.ends,)),
            parts=self.parts,
            steps_after=self.steps_after,
            lost=max(self.read - self.got, 0),
        )

    @property
    def sends_more(self) -> bool:
        """Whether the client may send another part: its session goes on, as far as it knows."""
        return self.open and not self.gone and OWN.issuperset(self.ends)


def _answered(tokens: int) -> Client:
    """The client of the request that ran alone, with an answer of so many tokens, or with a vector.
    Its end is over: if another one comes, the request has ended twice."""
    client = Client(Send(0, ALONE, 0, 0, tokens or 1))
    client.taken, client.tokens, client.ends = True, client.answer, ["length"]
    return client


class Episode:
    """An episode: one plan, played once."""

    def __init__(self, plan: EnginePlan, engine: Engine) -> None:
        sent = [each for each in plan.actions if isinstance(each, Send)]
        sessions = ["sessions"] * any(each.stays for each in sent)
        repetition = ["repetition"] * any(each.repeats for each in sent)
        contract_check.check().require(["engine loop", *sessions, *repetition])
        self.plan, self.engine = plan, engine
        self.left = deque(plan.actions)
        self.countdown = self.left[0].after if self.left else 0
        self.call_begins: Callable[[], None] = lambda: None
        self.known: tuple[SizeKnown, ...] = ()
        if plan.auto:
            connector = engine.store.settings if engine.store is not None else None
            before = functools.partial(config_of, engine.plan, engine.override, connector)
            self.known = ready.known(engine.ready, engine.vllm_config, before)
        self.statistics = Statistics(log_stats=not plan.without_statistics)
        self.statistics.install(engine.core.scheduler)
        late = {each.request for each in sent if each.grammar.endswith("late")}
        thinks = {each.request: each.thinks for each in sent if each.thinks}
        if any(each.forgotten for each in sent):
            engine.forget_images()
        self.grammars = Grammars(lambda name: name in late, thinks=bool(thinks))
        self.grammars.install(engine.core.structured_output_manager)
        self.worker = engine.executor
        self.worker.thinks = thinks
        self.worker.stops = {each.request: each.stops for each in sent if each.stops}
        self.worker.misses = plan.misses
        self.observed = engine.observed
        self.worker.moment, self.worker.reported = self.moment, self.statistics.of_workers
        self.worker.began, self.worker.settled = self._began, self._settled
        self.worker.begun = self.worker.tokens = 0
        self.facts_before = 0
        engine.listen(Messages(self._looks, self.wait, self._took), self._count)
        self.told: list[tuple[Client, Any]] = []
        self.clients: dict[str, Client] = {}
        self.before = {} if plan.is_given else {ALONE: _answered(engine.answer_alone)}
        self.calls: dict[int, Call] = {}
        self.called: set[int] = set()
        self.pausing, self.resuming = 0, -1
        self.before_call = False, False
        self.lifted = 0
        self.paused = self.complete = self.stopped = False
        self.idle: list[LoopWait] = []
        self.steps: list[StepSize] = []
        self.computed: list[int] = []
        self.asleep: list[int] = []
        self.settled: list[int] = []
        self.sleeps = False
        self.busy = self.preempted = 0
        self.answers: list[object] = []
        self.marks: list[int] = []
        self.counts: Counter[str] = Counter()

    # What the loop does.

    def _looks(self) -> None:
        """Begin a round of the loop: it looks whether there are messages."""
        self.facts_before = len(self.observed.facts) if self.observed is not None else 0
        self._catch_up()
        self.moment()

    def moment(self) -> None:
        """Count a moment of the loop, and take the next action if it is due."""
        self.call_begins()
        self._follow()
        self._look()
        if not self.left:
            self._go_on()
        else:
            while self.left and not self.countdown:
                self._act()
            self.countdown = max(self.countdown - 1, 0)
        self.engine.read()

    def wait(self) -> None:
        """Take the next action, because the loop would wait for a message."""
        self.call_begins()
        self._catch_up()
        self._read()
        self._look()
        self.idle.append(self._left_over(len(self.idle) + 1))
        if self.observed is not None:
            self.observed.settle()
            self.observed.note_unpublished()
        while self.left and not self.engine.unread:
            self._act()
            self.engine.read()
        if self.engine.unread:
            return
        if self.paused:
            self.lifted += 1
            if self.lifted > LIFTS_MAX:  # the engine refuses
                raise LoopEnd
            self._resume()
            self.engine.read()
            if not self.engine.unread:  # it was lost
                raise LoopEnd
        elif self._end_sessions():
            self.engine.read()
        else:
            if self.observed is not None:
                self.observed.note_owed()
            raise LoopEnd

    def _took(self, message: Any) -> None:
        """Record a message that the engine takes."""
        kind, what = message
        if kind.name == "ADD":
            client = self.clients[what[0].request_id]
            client.got += 1
            client.taken = True  # also where the engine ends before it has taken all
            if self.observed is not None:
                self.observed.arrive(what[0], text_of(what[0]))
        elif kind.name == "UTILITY":
            self.called.add(what[1])
            self._called(*what[1:])

    def _called(self, number: int, method: str, given: Sequence[Any]) -> None:
        """Record a call that the engine takes. One that is to end refuses it."""
        if self.engine.is_ending:
            return
        self.calls[number] = self.calls[number]._replace(pausing=self.paused and not self.complete)
        if method in ("resume_scheduler", "wake_up"):
            if not self.worker.left_asleep(*given):
                self.before_call, self.resuming = (self.paused, self.complete), number
                self.paused = self.complete = False
        elif method in (*PAUSES, "sleep"):
            self.paused, self.complete, self.pausing = True, False, number

    def _catch_up(self) -> None:
        """Record that the engine has taken all that it was told, if it has: no message is left."""
        if self.engine.unread:
            return
        for client, request in self.told:
            if request is None:
                client.gone = True
            else:
                client.taken = True
                client.read += not client.sent.forgotten
                client.parts += client.sent.stays and request.resumable
        self.told.clear()

    def _began(self, output: Any) -> None:
        tokens = output.total_num_scheduled_tokens
        drafter = self.engine.vllm_config.speculative_config
        slots = drafter.max_num_new_slots_for_drafting if drafter else 0
        self.steps.append(StepSize(tokens, len(output.num_scheduled_tokens), slots))
        self.preempted += len(getattr(output, "preempted_req_ids", None) or ())
        for name in output.num_scheduled_tokens:
            client = self._client(name)
            if client is not None and client.gone:
                client.steps_after += 1
        self._follow()
        if self.worker.asleep:
            self.asleep.append(tokens)
        elif self.complete:
            self.computed.append(tokens)

    def _settled(self) -> None:
        """Record that the engine takes its device to be idle."""
        self.settled.append(self.worker.steps)

    # What clients do.

    def _act(self) -> None:
        """Take the next action of the plan."""
        action = self.left.popleft()
        self.countdown = self.left[0].after if self.left else 0
        match action:
            case Send() if action.request not in self.clients:
                self._send(action)
            case More(request=name) if name in self.clients:
                self._send_more(self.clients[name], action)
            case Cancel(request=name, beside=beside) if name in self.clients:
                gone = [each for each in (name, *beside) if each in self.clients]
                for each in gone:
                    self.clients[each].open = False
                    self.told.append((self.clients[each], None))
                self.engine.send("ABORT", gone)
            case Arrive(request=name, fails=fails):
                self.worker.arrive(name, fails)
            case Compile(request=name):
                self.engine.read()
                self.grammars.compile(name)
            case Pause(mode=mode, clear=clear):
                self._call(PAUSES[hasattr(Core, PAUSES[0]) - 1], mode, clear, empties=clear)
            case Resume():
                self._resume()
            case Sleep(mode=mode, level=level):
                self.sleeps = True
                self._call("sleep", level, mode, empties=level > 0)
            case Wake(part=part) if self.sleeps and self.complete:
                self._resume(part)
            case Reset(running=running):
                self._call("reset_prefix_cache", running, empties=True)
            case Stop(drain=drain):
                self.stopped = True
                self.engine.stop(drain)

    def _send(self, one: Send) -> None:
        if one.refused and not front.drivable(one.leaves):
            return
        pools = self.plan.pools
        if len(one.tokens) + one.answer * (not pools) > self.engine.max_model_len:
            return  # the front refuses it
        params: dict[str, Any] = {}
        if one.role == "prefill":
            params = dict(TO_DECODE)
        elif one.role == "decode":
            params = offer(one, self.plan)
        client = self.clients[one.request] = Client(one, pools)
        if not one.refused:
            words = one.grammar.split()[0] if one.grammar else ""
            request = self.engine.request(
                *(one.request, one.tokens, one.answer, params, words),
                resumable=one.stays,
                priority=one.priority,
                stops=one.stops > 0,
                repeats=one.repeats,
                image=one.request if one.forgotten else "",
            )
            self.statistics.add(request)
            self._add(client, request)
            return
        # P has its blocks, whether the engine knows of it or not.
        client.taken = one.role == "decode"
        for request in front.refused(one.request, one.tokens, params, leaves=one.leaves):
            self._add(client, request)

    def _add(self, client: Client, request: Any) -> None:
        """Send a request, or a part of a session, for this client."""
        self.engine.send("ADD", request)
        self.told.append((client, request))

    def _send_more(self, client: Client, part: More) -> None:
        """Send the next part of a session, or say that no more parts come. The front then repeats
        the request with one token of its own, which is no part of the prompt."""
        if not client.sends_more:
            return
        name, more, urgency = part.request, part.own + part.answer, client.sent.priority
        if not part.own:
            client.open = False
            last = self.engine.request(name, [0], client.sent.answer, priority=urgency)
        elif client.sent_tokens + more <= self.engine.max_model_len:
            client.sent_tokens += more
            client.answer += part.answer
            tokens = [NEXT_PART] * part.own
            last = self.engine.request(
                *(name, tokens, part.answer), resumable=True, priority=urgency
            )
        else:
            return
        self.statistics.add(last)
        self._add(client, last)

    def _end_sessions(self) -> bool:
        """Say of each session that is open that no more parts come. Returns whether there was
        one."""
        names = [name for name, each in self.clients.items() if each.sends_more]
        for name in names:
            self._send_more(self.clients[name], More(0, name, 0))
        return bool(names)

    def _resume(self, part: str = "") -> None:
        """End the pause. An engine that sleeps is woken, or only this part of its memory."""
        if not self.sleeps:
            self._call("resume_scheduler")
            return
        self.sleeps = bool(part)
        self._call("wake_up", [part] if part else None)

    def _call(self, method: str, *given: Any, empties: bool = False) -> None:
        number = len(self.calls)
        self.calls[number] = Call(method, empties)
        self.engine.call(number, method, *given)

    def _go_on(self) -> None:
        """Remove all that holds up the loop, because the plan is over."""
        for name in list(self.worker.transfers):
            self.worker.arrive(name)
        for name in list(self.grammars.pending):
            self.grammars.compile(name)
        self._end_sessions()
        self.busy += 1
        if self.busy > BUSY_MAX:
            raise LoopEnd

    # What clients receive.

    def _look(self) -> None:
        """Note what can be seen now: what the workers and the clients got since the last look, and
        the state of the engine."""
        self.marks.append(self.engine.mark(self.answers))
        self.answers = []

    def _count(self, outputs: Any) -> None:
        """Count the hits of a step, the steps until requests end, and what is held after that, when
        the engine has its outputs."""
        held = shown.held_after_end(self.engine.core.scheduler)
        self.counts["blocks held after requests"] += held
        stats = outputs.scheduler_stats
        if stats is not None:
            self.counts["tokens hit"] += stats.prefix_cache_stats.hits
            if (external := stats.connector_prefix_cache_stats) is not None:
                self.counts["tokens offered by a connector"] += external.hits
        ended = sum(each.finish_reason is not None for each in outputs.outputs)
        self.counts["last steps of requests"] += ended * self.worker.begun

    def _counted(self) -> tuple[tuple[str, int], ...]:
        """All that is counted of the run."""
        free = sum(pool.get_num_free_blocks() for pool in self.engine.pools)
        return (
            *self.counts.items(),
            ("steps", self.worker.begun),
            ("tokens computed", self.worker.tokens),
            ("free blocks at the end", free),
            ("transfers pending at the end", len(self.worker.transfers)),
        )

    def _follow(self) -> None:
        """Read what the engine sends. Its thread is behind by some messages, so that it sends
        several one after the other, except where somebody waits for the next one."""
        someone_waits = (
            (self.paused and not self.complete)
            or any(each.open for each in self.clients.values())
            or self.busy >= BUSY_MAX
            or self.observed is not None
        )
        if someone_waits or self.engine.unsent > BEHIND_MAX:
            self._read()

    def _read(self) -> None:
        for outputs in self.engine.outputs():
            self.answers.append(shown.plain(outputs))
            if outputs.outputs or outputs.utility_output is not None:  # not statistics alone
                self.busy = 0
            if self.observed is not None:
                self.observed.answered(outputs)
            if outputs.utility_output is None:  # that is for the client of the call alone
                self.statistics.receive(outputs)
            for each in outputs.outputs:
                client = self._client(each.request_id)
                if client is None:  # a front ignores it, and a client who waits for it has no end
                    continue
                vectors = int(self.plan.pools and each.pooling_output is not None)
                client.tokens += len(each.new_token_ids) + vectors
                if client.tokens and not client.got and each.request_id in self.clients:
                    raise AdapterDrift(ELSEWHERE, "EngineCoreProc.input_queue")
                if each.finish_reason is not None:
                    client.ends.append(str(each.finish_reason))
            answered = outputs.utility_output
            if answered is not None and answered.call_id in self.calls:
                if answered.call_id not in self.called:
                    raise AdapterDrift(ELSEWHERE, "EngineCoreProc.input_queue")
                call, failure = self.calls[answered.call_id], answered.failure_message or ""
                self.calls[answered.call_id] = call._replace(
                    answers=call.answers + 1, failure=failure
                )
                if answered.call_id == self.pausing and call.method in (*PAUSES, "sleep"):
                    self.complete = self.paused and not failure
                elif answered.call_id == self.resuming and failure:  # the pause goes on
                    self.paused, self.complete = self.before_call

    def _client(self, name: str) -> Client | None:
        """The client of a request: of the plan, or of the start-up, whose request has ended."""
        return self.clients.get(name) or self.before.get(name)

    def _open(self) -> list[str]:
        """The requests without an end."""
        return [
            name
            for name, each in self.clients.items()
            if each.taken and not each.so_far.is_answered
        ]

    def _sessions(self) -> list[str]:
        """The sessions that wait for their user, or whose client may send another part."""
        return [name for name, each in self.clients.items() if each.taken and each.sends_more]

    def _masks(self, name: str, client: Client) -> tuple[int | None, ...]:
        """For each token of a request with a grammar, after its reasoning: the number of tokens
        that the mask took into account."""
        if not client.sent.grammar or name in self.worker.unsure:
            return ()
        after = range(client.sent.thinks, client.tokens)
        return tuple(self.worker.masks.get((name, number)) for number in after)

    def _left_over(self, number: int) -> LoopWait:
        """The work that is left, as clients and workers see it."""
        living, sessions = self._open(), self._sessions()
        return LoopWait(
            number,
            self.paused,
            tuple(living),
            self.worker.steps,
            tuple(sorted(set(self.worker.batch.prompts) - {*living, *sessions})),
            tuple(sorted(self.worker.transfers)),
            tuple(
                name
                for name, each in self.clients.items()
                if each.taken and each.sent.role == "decode"
                if name not in {*self.worker.notified, *self.worker.transfers, *living}
            ),
            self.engine.held,
            self.statistics.noted,
            (*self.statistics.received.items(),),
            sum(len(pool.kv_event_queue) for pool in self.engine.pools),
            tuple(sessions),
        )

    def _did(self) -> Did:
        answers = [each.tokens for each in self.clients.values() if not each.sent.refused]
        tokens = 0 if self.plan.pools else sum(answers)
        return Did(tokens, self.worker.tokens, sum(map(bool, answers)), self.preempted)

    def played(self) -> Played:
        """Play the plan. Raises AdapterDrift, also where the kit fails in another round than that
        of a wrong answer."""
        seen = Played(self.plan)
        exited = False
        try:
            with watched() as self.call_begins:
                self.engine.core.run_busy_loop()
        except SystemExit:
            exited = True
            self._read()
            self.idle.append(self._left_over(0))
        except LoopEnd:
            self._read()
        except Exception as error:
            interruption.check()
            facts = self.observed.take_facts() if self.observed is not None else []
            store = self.engine.store
            if blame.is_ours(error) and store and store.breaks(facts, self.facts_before):
                # The kit fails at a wrong answer.
                return seen._replace(store=tuple(facts), cut=True)
            blame.spare(error)
            self.worker.spare(error)
            with suppress(Exception):  # the front may be what has died
                self._read()
            seen = seen._replace(died=death_of(error), store=tuple(facts))
        return seen._replace(
            requests=tuple(
                each.so_far._replace(
                    masks=self._masks(name, each),
                    untold=self.statistics.untold(name) if each.sent.forgotten else None,
                )
                for name, each in (*self.before.items(), *self.clients.items())
                if each.taken
            ),
            waits=tuple(self.idle),
            busy=self.busy > BUSY_MAX,
            stopped=self.stopped,
            exited=exited,
            steps=tuple(self.steps),
            computed=tuple(self.computed),
            asleep=tuple(self.asleep),
            settled=tuple(self.settled),
            calls=tuple(self.calls.values()),
            known=self.known,
            did=self._did(),
            exported=self.statistics.exported(),
            marks=(*self.marks,),
            counts=self._counted(),
            store=seen.store or tuple(self.observed.take_facts() if self.observed else ()),
        )


def offer(one: Send, plan: EnginePlan) -> dict[str, Any]:
    """The parameters that a prefill node P returned for a request. P has the same layers."""
    alike = replace(
        plan,
        chunk_tokens=LENGTH,
        overlaps=False,
        counted_from="given",
        blocks=BLOCKS_OF_PREFILL,
        override=True,
        auto=False,
        drafts=0,
        recompute=False,
        actions=(),
    )
    params = _offers(alike)[len(one.tokens)]
    return {**params, "remote_engine_id": "P", "remote_request_id": f"P-{one.request}"}


@functools.lru_cache(NODES_KEPT)
def _offers(plan: EnginePlan) -> dict[int, dict[str, Any]]:
    """The parameters that a P of this plan returns for a prompt of each length that it takes. It
    computes all of them in order, so that what it returns for one does not depend on those that
    were asked for."""
    engine = Engine(plan, [PLENTY_BYTES] * len(plan.workers()), plan.blocks)
    offers: dict[int, dict[str, Any]] = {}
    for length in range(1, min(LENGTH, plan.max_model_len)):  # with a token to answer
        prompt = range(length * LENGTH, length * LENGTH + length)
        request = engine.add(engine.request(f"p{length}", prompt, 1, dict(TO_DECODE)))
        for _ in range(LENGTH):
            if not request.is_finished():
                engine.step()
        ended = (each for outputs in engine.outputs() for each in outputs.outputs)
        offers[length] = {}
        for each in ended:
            offers[length] = each.kv_transfer_params or offers[length]
    engine.close()
    return offers


PAUSES = ("pause_generation", "pause_scheduler")
"""The call that pauses, newest release first."""


def played(plan: EnginePlan, engine: Engine) -> Played:
    """Play the actions of a plan on its engine, and return the result. Raises AdapterDrift."""
    try:
        with watched():
            episode = Episode(plan, engine)
    except Exception as error:
        interruption.check()
        blame.spare(error)
        return Played(plan, died=death_of(error))
    return episode.played()
