"""Live vLLM as a machine: one engine, or a P and a D.

It translates events into calls of the real classes and reads the state afterwards. It decides
nothing: vLLM chooses which requests are scheduled, how many tokens, and with which blocks. An
exception from vLLM is reported as the death of an engine, unless the adapter caused it (see
`blame`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from kvproof.live import blame, both, endless
from kvproof.live.contract_check import require
from kvproof.live.death import death_of
from kvproof.live.driver.node import Node
from kvproof.live.driver.pull import Pull
from kvproof.live.driver.push import Push
from kvproof.model import ghost
from kvproof.model.config import Cluster, Job
from kvproof.model.config.sides import taker
from kvproof.model.environment import arrivals, stimuli
from kvproof.model.errors import NotAllowed
from kvproof.model.events import (
    Abort,
    Complete,
    Continue,
    Event,
    Evict,
    LeaseExpire,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    StrayReport,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
    stimulus,
)
from kvproof.model.finding import Finding
from kvproof.model.kv_events import Report
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, SENDING, VOID, State
from kvproof.model.step import Effects, Step


class LiveMachine:
    """Real vLLM behind `model.machine.Machine`."""

    name = "live"

    def __init__(self, cluster: Cluster) -> None:
        require(cluster)
        self.cluster = cluster
        options = cluster.load_failure, cluster.follow_up_turns, cluster.pushes
        with blame.reading():
            self.nodes = {e.name: Node(e, *options) for e in cluster.engines}
            kind = Push if cluster.pushes else Pull
            self.transfers: Pull | Push = kind(cluster, self.nodes)
        self.state = State(tuple(n.engine for n in self.nodes.values()))
        self.take_by_event: dict[type, Callable[[Any], Effects | None]] = {
            Submit: self._submit,
            Schedule: self._schedule,
            Complete: self._complete,
            TransferDone: self._transfer_done,
            TransferFail: self._transfer_fail,
            TransferLost: self._transfer_lost,
            Abort: self._abort,
            LeaseExpire: self._lease_expire,
            Continue: self._continue,
            StrayReport: self._stray_report,
            Evict: self._evict,
            ResetPrefixCache: self._reset,
            ResetRunning: self._reset_running,
        }

    def shown(self) -> Sequence[object]:
        """What each engine answered to the calls of the last event, and what it says of itself."""
        with blame.reading():
            return [each for node in self.nodes.values() for each in node.shown()]

    def close(self) -> None:
        """Shut down the schedulers."""
        with blame.reading(), self.transfers.device():
            for node in self.nodes.values():
                node.scheduler.shutdown()

    def add_job(self, job: Job) -> None:
        """Add a job to the cluster."""
        self.cluster = self.cluster.carrying(*self.cluster.jobs, job)
        require(self.cluster)
        self.transfers.cluster = self.cluster

    def stimuli(self) -> list[Event]:
        """The events that the environment may send next."""
        return list(stimuli.stimuli(self.cluster, self.state))

    def take(self, event: Event) -> Step:
        """Take one stimulus. The step's event has the choices of vLLM. Raises NotAllowed where the
        stimulus is not possible in this state."""
        if stimulus(event) not in self.stimuli():
            raise NotAllowed(f"{stimulus(event)} is not possible in this state")
        before = self.state
        effects = Effects()
        for node in self.nodes.values():
            node.answers.clear()
        try:
            with endless.watched(), self.transfers.device():
                effects = self.take_by_event[type(event)](event) or effects
        except Exception as error:  # an exception from vLLM kills its engine
            self._record_death(event, error)
        with blame.reading():
            reports = self._refresh()
            keep = tuple(name for name, node in self.nodes.items() if node.keeps_events)
            effects = effects._replace(reports=reports, unpublished=keep)
        resolved = event
        if isinstance(event, Schedule):
            chose = tuple(self.nodes[event.engine].recorder.event.choices)
            resolved = replace(event, chose=chose)
        step = ghost.remembered(self.cluster, Step(before, resolved, effects, self.state))
        self.state = step.after
        return step

    def believe(self, state: State) -> None:
        """Continue as if the blocks and the listeners' mirrors had the content that this state
        says. This changes nothing in vLLM."""
        for engine in state.engines:
            node = self.nodes[engine.name]
            node.worker.memory = engine.memory
            node.engine = engine.observed
        self.state = state

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:  # noqa: ARG002
        """All findings: without `Watched`, which has the known findings, each finding ends the
        run."""
        return list(findings)

    def note_excused(self, step: Step, findings: Sequence[Finding]) -> None:
        """Do nothing: one vLLM alone says nothing of what is excused."""

    def _record_death(self, event: Event, error: Exception) -> None:
        blame.spare(error)
        transfer = getattr(event, "request", "")
        name = getattr(event, "engine", taker(self.cluster, transfer).engine.name)
        owned = {name: node.owns() for name, node in self.nodes.items()}
        node = self.nodes[blame.dead_by(error, owned, name)]
        node.engine = node.engine._replace(dead=death_of(error))

    def _refresh(self) -> tuple[Report, ...]:
        """Read all engines again. Returns the KV events that they reported."""
        reports: tuple[Report, ...] = ()
        for node in self.nodes.values():
            if not node.engine.dead:
                node.refresh()
                reports += node.take_reports()
        self.state = self.state._replace(engines=tuple(n.engine for n in self.nodes.values()))
        self.state = self.transfers.seen(self.state)
        return reports

    # One method for each event.

    def _submit(self, event: Submit) -> None:
        known = arrivals.arrival(self.cluster, event.request, event.engine)
        params = None
        if known.route == "to_decode":
            params = self.transfers.params_of_prefill(event.engine, event.request)
        elif known.route == "from_prefill":
            params = self.transfers.params_of_decode(event.request)
        self.nodes[event.engine].add(known, params, self.cluster.job(event.request))

    def _continue(self, event: Continue) -> None:
        node = self.nodes[event.engine]
        with self._noting_ends(node):
            node.go_on(self.cluster.job(event.request))

    def _schedule(self, event: Schedule) -> Effects:
        node = self.nodes[event.engine]
        effects = node.schedule()
        if node.nixl is not None and node.output is not None:
            made = both.metadata(node.cfg, node.output.kv_connector_metadata).nixl
            self.state = self.transfers.stepped(self.state, node, made)
        if node.output is not None and not node.output.num_scheduled_tokens:
            node.nothing_scheduled()
        return effects

    def _complete(self, event: Complete) -> Effects:
        node = self.nodes[event.engine]
        computed = {r.id: r.computed for r in node.engine.requests}
        if event.failed:
            self.state = self.state._replace(failures=self.state.failures + 1)
        with self._noting_ends(node):
            returned = node.complete(event.accepted, event.failed)
            self.state = self.transfers.completed(self.state, node, returned, computed)
            ended = self.state.engine(event.engine).steps
            reads = node.carry_out(ended[0] if ended else ())
        return Effects(reads)

    @contextmanager
    def _noting_ends(self, node: Node) -> Iterator[None]:
        """Record the jobs of an engine that end in the block."""
        held = [r.id for r in node.engine.requests]
        yield
        node.refresh()
        for name in held:
            request = node.engine.find(name)
            if request is None or request.status in (SENDING, ABORTED):
                self.state = self.state.ending(node.cfg.name, name)

    def _transfer_done(self, event: TransferDone) -> None:
        self.state = self.transfers.done(self.state, event.request)

    def _transfer_fail(self, event: TransferFail) -> None:
        sink = self.nodes[taker(self.cluster, event.request).engine.name]
        with self._noting_ends(sink):
            self.state = self.transfers.failed(self.state, event.request)

    def _transfer_lost(self, event: TransferLost) -> None:
        transfer = self.state.transfer(event.request)
        if transfer is not None:
            self.state = self.state.with_transfer(event.request, transfer.to(Phase.LOST))

    def _abort(self, event: Abort) -> None:
        from vllm.v1.request import RequestStatus

        node = self.nodes[event.engine]
        with self._noting_ends(node):
            node.scheduler.finish_requests(event.request, RequestStatus.FINISHED_ABORTED)
        self.state = self.transfers.aborted(self.state, node)

    def _lease_expire(self, event: LeaseExpire) -> None:
        with self._noting_ends(self.transfers.decode):
            self.state = self.transfers.lease_ended(self.state, event.request)

    def _stray_report(self, event: StrayReport) -> None:
        node = self.nodes[event.engine]
        held = node.engine.find(event.request)  # in a reverse transfer P is the receiver
        received = node is self.transfers.decode or held is not None
        kind = "finished_recving" if received else "finished_sending"
        node.report(**{kind: {event.request}})

    def _evict(self, event: Evict) -> None:
        self.nodes[event.engine].scheduler.kv_cache_manager.evict_blocks({event.block})

    def _reset(self, event: ResetPrefixCache) -> Effects:
        done = self.nodes[event.engine].scheduler.reset_prefix_cache()
        return Effects(resets=(event.engine,) if done else ())

    def _reset_running(self, event: ResetRunning) -> Effects:
        scheduler = self.nodes[event.engine].scheduler
        done = scheduler.reset_prefix_cache(reset_running_requests=True)
        self.nodes[event.engine].note_stale(VOID)
        return Effects(resets=(event.engine,) if done else ())
