"""Live vLLM as a machine: one engine, or a P and a D.

It translates events into calls of the real classes and reads the state off afterwards. It decides
nothing: which requests are scheduled, how far, and with which blocks is vLLM's doing. An exception
that leaves vLLM is an engine's death, and is reported as such.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproof.live import availability, nixl
from kvproof.live.adapt import CannotDrive
from kvproof.live.node import Node
from kvproof.model import cluster as model
from kvproof.model import memory
from kvproof.model.config import Cluster, Job
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
from kvproof.model.reports import Report
from kvproof.model.state import ABORTED, SENDING, State, Transfer
from kvproof.model.step import Effects, Step

ROOM = Path(__file__).parent
"""An exception raised here is a mistake of the adapter, and no engine's death."""


class LiveMachine:
    """Real vLLM behind `model.machine.Machine`."""

    name = "live"

    def __init__(self, cluster: Cluster) -> None:
        availability.drivable()
        self.cluster = cluster
        self.nodes = {e.name: Node(e, cluster.load_failure) for e in cluster.engines}
        self.handed_over: dict[str, dict[str, Any]] = {}
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

    def close(self) -> None:
        """Let go of the schedulers."""
        for node in self.nodes.values():
            node.scheduler.shutdown()

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic."""
        self.cluster = self.cluster.carrying(*self.cluster.jobs, job)

    def stimuli(self) -> list[Event]:
        """What the environment may do next."""
        return list(model.stimuli(self.cluster, self.state))

    def take(self, event: Event) -> Step:
        """Take one stimulus. The step's event tells what vLLM chose."""
        if stimulus(event) not in self.stimuli():
            raise NotAllowed(f"{stimulus(event)} is not possible in this state")
        before = self.state
        effects = Effects()
        try:
            effects = self.take_by_event[type(event)](event) or effects
        except Exception as error:  # whatever leaves vLLM has killed its engine
            self._bury(event, error)
        effects = effects._replace(reports=self._refresh())
        resolved = event
        if isinstance(event, Schedule):
            chose = tuple(self.nodes[event.engine].recorder.choices)
            resolved = event._replace(chose=chose)
        return Step(before, resolved, effects, self.state)

    def _bury(self, event: Event, error: Exception) -> None:
        name = getattr(event, "engine", self.cluster.decode.name)
        node = self.nodes[name]
        last = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, CannotDrive) or Path(last.filename).is_relative_to(ROOM):
            raise error
        where = last.name
        said = f"{type(error).__name__} in {where}: {error}".strip().rstrip(":")
        node.engine = node.engine._replace(dead=said)

    def _refresh(self) -> tuple[Report, ...]:
        """Read all engines off again. Gives what they told of their caches."""
        said: tuple[Report, ...] = ()
        for node in self.nodes.values():
            if not node.engine.dead:
                node.refresh()
                said += node.heard()
        self.state = self.state._replace(engines=tuple(n.engine for n in self.nodes.values()))
        return said

    def _prefill(self) -> Node:
        return self.nodes[self.cluster.prefill.name]

    def _decode(self) -> Node:
        return self.nodes[self.cluster.decode.name]

    # One method an event.

    def _submit(self, event: Submit) -> None:
        known = model.arrival(self.cluster, event.request, event.engine)
        params = None
        if known.route == "to_decode":
            params = {"do_remote_decode": True, "do_remote_prefill": False}
        elif known.route == "from_prefill":
            params = dict(self.handed_over[event.request])
        self.nodes[event.engine].add(known, params, self.cluster.job(event.request))

    def _continue(self, event: Continue) -> None:
        node = self.nodes[event.engine]
        held = {r.id for r in node.engine.requests}
        node.go_on(self.cluster.job(event.request))
        self._note_ended(node, held)

    def _schedule(self, event: Schedule) -> Effects:
        node = self.nodes[event.engine]
        effects = node.schedule()
        if node.nixl is not None and node.output is not None:
            meta = node.output.kv_connector_metadata
            for name, request in meta.reqs_to_recv.items():
                self._start(node, name, request)
        if node.output is not None and not node.output.num_scheduled_tokens:
            node.nothing_scheduled()
        return effects

    def _start(self, node: Node, name: str, meta: Any) -> None:
        """D's worker gets a request to read, or to tell P that it need not."""
        transfer = self.state.transfer(name)
        if transfer is None or transfer.phase != "offered":
            return
        if not nixl.awaits(meta):
            count = len(self.cluster.decode.groups)
            empty: Any = ((),) * count
            transfer = transfer._replace(phase="telling", local=empty, pairs=(((), ()),) * count)
        else:
            local = nixl.as_lists(meta.local_block_ids)
            remote = nixl.as_lists(meta.remote.block_ids)
            pairs = nixl.paired(node.nixl, self.cluster.prefill, local, remote)
            transfer = transfer._replace(phase="reading", local=local, remote=remote, pairs=pairs)
        self.state = self.state.moving(name, transfer)

    def _complete(self, event: Complete) -> Effects:
        node = self.nodes[event.engine]
        computed = {r.id: r.computed for r in node.engine.requests}
        if event.failed:
            self.state = self.state._replace(failures=self.state.failures + 1)
        for name, params in node.complete(dict(event.accepted), event.failed).items():
            if params.get("do_remote_prefill"):
                self.handed_over[name] = params
                lists = nixl.as_lists(params["remote_block_ids"])
                tokens = params.get("remote_num_tokens", computed[name])
                offer = Transfer(name, "offered", tokens, lists)
                self.state = self.state.moving(name, offer)
        ended = self.state.engine(event.engine).steps
        reads = node.carry_out(ended[0] if ended else ())
        self._note_ended(node, set(computed))
        return Effects(reads)

    def _note_ended(self, node: Node, held: set[str]) -> None:
        """Jobs that an engine held and has finished with."""
        node.refresh()
        for name in held:
            request = node.engine.find(name)
            if request is None or request.status in (SENDING, ABORTED):
                self.state = self.state.ending(node.cfg.name, name)

    def _transfer_done(self, event: TransferDone) -> None:
        name = event.request
        transfer = self.state.transfer(name)
        p, d = self._prefill(), self._decode()
        if transfer is not None and transfer.phase == "reading":
            sink = memory.copy(p.engine, d.engine, p.cfg, d.cfg, transfer.pairs)
            d.worker.memory = sink.memory
            d.report(finished_recving={name})
        self.state = self.state.moving(name, None)
        if name in p.scheduler.requests:
            p.report(finished_sending={name})

    def _transfer_fail(self, event: TransferFail) -> None:
        name = event.request
        transfer = self.state.transfer(name)
        if transfer is not None:
            gone = transfer._replace(phase="abandoned", local=(), pairs=())
            self.state = self.state.moving(name, gone)
        self.state = self.state._replace(failures=self.state.failures + 1)
        d = self._decode()
        held = {r.id for r in d.engine.requests}
        d.report(failed_recving={name}, finished_recving={name})
        self._note_ended(d, held)

    def _transfer_lost(self, event: TransferLost) -> None:
        transfer = self.state.transfer(event.request)
        if transfer is not None:
            self.state = self.state.moving(event.request, transfer._replace(phase="lost"))

    def _abort(self, event: Abort) -> None:
        from vllm.v1.request import RequestStatus

        node = self.nodes[event.engine]
        held = {r.id for r in node.engine.requests}
        node.scheduler.finish_requests(event.request, RequestStatus.FINISHED_ABORTED)
        self._note_ended(node, held)
        transfer = self.state.transfer(event.request)
        if transfer is None or transfer.phase != "offered" or node is not self._decode():
            return
        pending = node.scheduler.connector.connector_scheduler._reqs_need_recv
        if event.request in pending:
            self.state = self.state.moving(event.request, transfer._replace(phase="telling"))

    def _lease_expire(self, event: LeaseExpire) -> None:
        name = event.request
        transfer = self.state.transfer(name)
        self._prefill().report(finished_sending={name})
        if transfer is not None and transfer.phase != "lost":
            self.state = self.state.moving(name, None).ending(self.cluster.decode.name, name)

    def _stray_report(self, event: StrayReport) -> None:
        node = self.nodes[event.engine]
        kind = "finished_recving" if node is self._decode() else "finished_sending"
        node.report(**{kind: {event.request}})

    def _evict(self, event: Evict) -> None:
        self.nodes[event.engine].scheduler.kv_cache_manager.evict_blocks({event.block})

    def _reset(self, event: ResetPrefixCache) -> None:
        node = self.nodes[event.engine]
        if node.scheduler.reset_prefix_cache():
            node.refresh()
            node.engine = node.engine._replace(served=())

    def _reset_running(self, event: ResetRunning) -> None:
        node = self.nodes[event.engine]
        node.scheduler.reset_prefix_cache(reset_running_requests=True)
        node.refresh()
        node.engine = node.engine._replace(served=())
