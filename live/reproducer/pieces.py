"""The events of a trace as statements of a test, in vLLM's words."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kvproof.live.reproducer.layout import call, literal
from kvproof.live.reproducer.library import fitted, library
from kvproof.live.reproducer.settings import Settings
from kvproof.live.reproducer.words import chosen
from kvproof.model.config import Cluster, EngineConfig, Job
from kvproof.model.config.extra_keys import ADAPTERS, plain
from kvproof.model.environment import turns
from kvproof.model.environment.arrivals import arrival
from kvproof.model.events import (
    Abort,
    Admit,
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
)
from kvproof.model.state import SAMPLED

NAMES = {"both": "scheduler", "prefill": "prefill", "decode": "decode"}
"""The variable of an engine, by its role."""


class Piece(NamedTuple):
    """Statements, with a comment before them. `event` is the index of their event in the trace, and
    `engine` the engine that they are about. `step` says that they schedule a step. Where the next
    piece `ends` the step at once, both together read as `whole`."""

    event: int
    source: str
    comment: str
    engine: str = ""
    step: bool = False
    whole: str = ""
    ends: bool = False


class Writer:
    """Writes the statements of one trace. Event by event, it notes what later ones need."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.features = settings.features
        self.arrived: dict[str, int] = {}
        self.submitted: dict[str, int] = {}
        self.admitted: dict[str, Admit] = {}
        self.open: dict[str, bool] = {}
        self.write: Mapping[type, Callable[[Any], Iterator[Piece]]] = {
            Abort: self._abort,
            Complete: self._complete,
            Continue: self._continue,
            Evict: self._evict,
            LeaseExpire: self._lease_expire,
            ResetPrefixCache: self._reset,
            ResetRunning: self._reset_running,
            Schedule: self._schedule,
            StrayReport: self._stray_report,
            Submit: self._submit,
            TransferDone: self._transfer_done,
            TransferFail: self._transfer_fail,
            TransferLost: self._transfer_lost,
        }

    def pieces(self, events: tuple[Event, ...]) -> list[Piece]:
        """The statements of all events."""
        written = []
        for index, event in enumerate(events):
            following = events[index + 1] if index + 1 < len(events) else None
            for piece in self.write[type(event)](event):
                written.append(piece._replace(event=index))
            if isinstance(event, Schedule) and not isinstance(following, Complete):
                written += [p._replace(event=index) for p in self._nothing(event, following)]
        return written

    def variable(self, engine: str) -> str:
        """The variable of an engine."""
        return NAMES[self.cluster.engine(engine).role]

    def queue(self, engine: EngineConfig) -> str:
        """The variable of the steps in flight of an engine."""
        return "in_flight" if engine.role == "both" else f"{NAMES[engine.role]}_in_flight"

    def constants(self, engine: str, function: str) -> list[str]:
        """The keyword arguments with an engine's own settings."""
        found = self.settings.of_engine[engine]
        words = set(re.findall(r"\w+", fitted(library().definitions[function], self.features)))
        return [f"{name.lower()}={found[name]}" for name in found if name in words]

    def _add(self, engine: str, name: str, prompt: str, tokens: int, *more: str) -> list[str]:
        job, cfg = self.cluster.job(name), self.cluster.engine(engine)
        arguments = [literal(name), literal(prompt), f"max_tokens={tokens}", *more]
        arrived = self.arrived.get(engine, 0)
        self.arrived[engine] = arrived + 1
        if self.cluster.by_priority:
            arguments += [f"priority={job.priority}"] if job.priority else []
            arguments += [f"arrival_time={arrived}"]
        arguments += self.constants(cfg.name, "make_request")
        start = f"{self.variable(engine)}.add_request(make_request("
        lines = call(start, arguments, "))", indent=4)
        if len(lines) > 1:  # ruff breaks the outer call first
            inner = call("make_request(", arguments, ")", indent=8)
            lines = [f"    {self.variable(engine)}.add_request(", *inner, "    )"]
        return lines

    def _submit(self, event: Submit) -> Iterator[Piece]:
        job = self.cluster.job(event.request)
        known = arrival(self.cluster, event.request, event.engine)
        self.submitted[event.request] = len(job.prompt)
        more, whose = self._params(event, job), ""
        more += ["resumable=True"] if job.parts else []
        more += ["embeds=True"] if job.embeds else []
        more += ['cache_salt="one-name"'] if job.extra_key == "salt" else []
        if job.extra_key in ADAPTERS:
            number, path = ADAPTERS.index(job.extra_key) + 1, f"/adapters/{job.extra_key}"
            more += [f'adapter=LoRARequest("one-name", {number}, {literal(path)})']
        lines = self._add(event.engine, job.name, plain(known.prompt), known.max_tokens, *more)
        if job.parts:
            whose = ", the first part of a session,"
        where = "" if not self.cluster.disaggregated else f" at {event.engine}"
        yield self._piece(event.engine, f"{job.name}{whose} arrives{where}.", lines)

    def _params(self, event: Submit, job: Job) -> list[str]:
        role = self.cluster.engine(event.engine).role
        if role == "both":
            return []
        if role == "decode":
            return [f"params=dict(params[{literal(job.name)}])"]
        if job.follows:
            return [f"params=held.get({literal(job.follows)}, FOR_DECODE)"]
        return ["params=dict(FOR_DECODE)"]

    def _continue(self, event: Continue) -> Iterator[Piece]:
        job = self.cluster.job(event.request)
        part = _part(job, self.submitted[job.name])
        self.submitted[job.name] += job.max_tokens - 1 + len(part)
        more = ["resumable=True"] if part else []
        lines = self._add(event.engine, job.name, part or SAMPLED, job.max_tokens, *more)
        what = f"The next part of {job.name} arrives." if part else f"The user ends {job.name}."
        yield self._piece(event.engine, what, lines)

    def _schedule(self, event: Schedule) -> Iterator[Piece]:
        for choice in event.chose or ():
            if isinstance(choice, Admit):
                self.admitted[choice.request] = choice
        cfg, name = self.cluster.engine(event.engine), self.variable(event.engine)
        comment = chosen(event, self.cluster.disaggregated)
        if cfg.overlaps:
            lines = [f"    step = dispatch({name}, {self.queue(cfg)})"]
            yield self._piece(event.engine, comment, lines)._replace(step=True)
            return
        whole = f"    {self._keeps(cfg)}run_step({name})"
        yield self._piece(event.engine, comment, [f"    step = schedule({name})"])._replace(
            step=True, whole=whole
        )

    def _keeps(self, engine: EngineConfig) -> str:
        """Where the transfer parameters of finished requests go."""
        if engine.role == "decode":
            return "held |= " if self.cluster.follow_up_turns else ""
        return "params |= " if engine.role == "prefill" else ""

    def _nothing(self, event: Schedule, following: Event | None) -> Iterator[Piece]:
        """A step without tokens: its output arrives at once. A step whose output the trace does not
        have any more gets none."""
        cfg, name = self.cluster.engine(event.engine), self.variable(event.engine)
        if not cfg.overlaps and following is not None:
            source = f"    {self._keeps(cfg)}update({name}, step)"
            yield Piece(0, source, "", event.engine, ends=True)

    def _complete(self, event: Complete) -> Iterator[Piece]:
        cfg, name = self.cluster.engine(event.engine), self.variable(event.engine)
        arguments = [name, self.queue(cfg) if cfg.overlaps else "step"]
        comment, before = [], []
        if event.accepted:
            arguments.append(f"accepted={literal(dict(event.accepted))}")
            comment.append(f"Accepted drafts: {_listed(event.accepted)}.")
        if event.failed:
            size = cfg.groups[0].block_size
            admit = self.admitted[event.failed]
            first, count = admit.local_hit // size, admit.external // size
            who = literal(event.failed)
            before.append(f"    invalid = table({name}, {who}, 0)[{first}:{first + count}]")
            before.append(f"    lose({name}, {who}, {admit.local_hit + size})")
            arguments.append("invalid_block_ids=invalid")
            comment.append(f"The load of {event.failed} from the store has failed.")
        function = "arrive(" if cfg.overlaps else "update("
        if cfg.overlaps and not comment:
            comment.append(f"The output of the oldest step{_of(self.cluster, event)} arrives.")
        lines = [*before, *call(f"{self._keeps(cfg)}{function}", arguments, indent=4)]
        piece = self._piece(event.engine, " ".join(comment), lines)
        yield piece._replace(ends=not comment and not cfg.overlaps)

    def _transfer_done(self, event: TransferDone) -> Iterator[Piece]:
        source, sent, sink, taken = turns.parties(self.cluster, event.request)
        arguments = [NAMES[source.role], literal(sent), NAMES[sink.role], literal(taken)]
        comment = (
            f"{sink.name} has read the blocks of {sent}, or needs none; {source.name} may free."
        )
        yield self._piece(sink.name, comment, call("end_transfer(", arguments, indent=4))

    def _transfer_fail(self, event: TransferFail) -> Iterator[Piece]:
        _, _, sink, taken = turns.parties(self.cluster, event.request)
        who = literal(taken)
        arguments = [NAMES[sink.role], f"finished_recving={{{who}}}", f"failed_recving={{{who}}}"]
        comment = f"{sink.name}'s read of {taken} has failed."
        yield self._piece(sink.name, comment, call("report(", arguments, indent=4))

    def _transfer_lost(self, _event: TransferLost) -> Iterator[Piece]:
        yield from ()

    def _abort(self, event: Abort) -> Iterator[Piece]:
        arguments = [literal(event.request), "RequestStatus.FINISHED_ABORTED"]
        start = f"{self.variable(event.engine)}.finish_requests("
        comment = f"The user aborts {event.request}{_of(self.cluster, event)}."
        yield self._piece(event.engine, comment, call(start, arguments, indent=4))

    def _lease_expire(self, event: LeaseExpire) -> Iterator[Piece]:
        source, sent, _, _ = turns.parties(self.cluster, event.request)
        arguments = [NAMES[source.role], f"finished_sending={{{literal(sent)}}}"]
        comment = f"{source.name}'s lease on the blocks of {sent} ends."
        yield self._piece(source.name, comment, call("report(", arguments, indent=4))

    def _stray_report(self, event: StrayReport) -> Iterator[Piece]:
        kind = (
            "finished_recving" if event.engine == self.cluster.decode.name else "finished_sending"
        )
        arguments = [self.variable(event.engine), f"{kind}={{{literal(event.request)}}}"]
        comment = f"{event.engine}'s worker reports the end of {event.request} again."
        yield self._piece(event.engine, comment, call("report(", arguments, indent=4))

    def _evict(self, event: Evict) -> Iterator[Piece]:
        start = f"{self.variable(event.engine)}.kv_cache_manager.evict_blocks("
        comment = f"Block {event.block}{_of(self.cluster, event)} leaves the prefix cache."
        yield self._piece(event.engine, comment, call(start, [f"{{{event.block}}}"], indent=4))

    def _reset(self, event: ResetPrefixCache) -> Iterator[Piece]:
        lines = [f"    {self.variable(event.engine)}.reset_prefix_cache()"]
        yield self._piece(event.engine, "The prefix cache is reset.", lines)

    def _reset_running(self, event: ResetRunning) -> Iterator[Piece]:
        start = f"{self.variable(event.engine)}.reset_prefix_cache("
        lines = call(start, ["reset_running_requests=True"], indent=4)
        comment = "The prefix cache is reset; running requests are preempted."
        yield self._piece(event.engine, comment, lines)

    @staticmethod
    def _piece(engine: str, comment: str, lines: list[str]) -> Piece:
        return Piece(0, "\n".join(lines), comment, engine)


def _of(cluster: Cluster, event: Any) -> str:
    return f" of {event.engine}" if cluster.disaggregated else ""


def _listed(accepted: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in accepted.items())


def _part(job: Job, submitted: int) -> str:
    """The next part of a session, of which these many tokens were submitted; empty at the end."""
    length = len(job.prompt)
    for part in job.parts:
        if length == submitted:
            return part
        length += job.max_tokens - 1 + len(part)
    return ""
