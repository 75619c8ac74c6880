"""The fake workers of an engine. They have layers and memory, sample tokens without a model, keep
data about the requests of each step, and end transfers when the plan says so."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol

from kvproof.live import adapt
from kvproof.live.batch import Batch, ComputedPart
from kvproof.live.core.grammars import END_OF_REASONING, known
from kvproof.live.fakes.clock import Clock
from kvproof.live.observer import shown
from kvproof.live.step_output import END_ID, drafted, encoded, pooled, sampled
from kvproof.model.errors import AdapterDrift
from kvproof.model.state import Table


class StepOutput(Future[Any]):
    """The output of a step, which is computed when it is first asked for."""

    def __init__(self, value: Any, wanted: Callable[[], None]) -> None:
        super().__init__()
        self._wanted = wanted
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        """The output, computed at the first call."""
        wanted, self._wanted = self._wanted, lambda: None
        wanted()
        return super().result(timeout)


ANSWERLESS = (
    *("set_kv_cache_layout", "compile_or_warm_up_model", "register_failure_callback"),
    *("init_kv_output_aggregator", "get_kv_connector_handshake_metadata", "shutdown"),
    *("reset_mm_cache", "reset_encoder_cache", "init_ec_output_aggregator"),
)
"""The methods of workers whose answer no caller uses."""

MEASURES = "_measure_on_worker"
"""The function of vLLM that asks a worker for the width of what its encoder gives for a token."""

ENCODED = {"image": 1}
"""The widths in the connector kit (`connectors.encoder`)."""

LAYOUTS = ("LBNHC", "LBHNC", "BLNHC", "BLHNC")

MEMORY = frozenset({"weights", "kv_cache"})
"""The parts of the memory that sleeping workers give up."""

LOADS = "finished_recving"
"""The field of a report that has the loads which have ended."""

POOLING = "embed"
"""The task of a model that pools, under vLLM's name."""

UNKNOWN = -1
"""A draft token that the scheduler does not know."""


class Workers(Protocol):
    """The workers of the kit, which carry out the parts of a step on KV caches with real bytes, and
    return what their connectors report, by the fields of a `ModelRunnerOutput`. Those of an engine
    that only `encodes` images sample nothing."""

    clock: Clock
    encodes: bool

    def execute(
        self, output: Any, parts: list[ComputedPart], tables: Mapping[str, tuple[Table, ...]]
    ) -> dict[str, Any]: ...


class _Step(NamedTuple):
    """A step: the scheduler's output, its parts, the number of accepted draft tokens of each
    request, and the number of tokens of its answer before the last one that it samples, if all
    drafts are accepted. `more` has the reports of connectors, by the fields of a
    `ModelRunnerOutput`, and `works` is the number of works of the kit's device until then."""

    output: Any
    parts: list[ComputedPart]
    accepted: dict[str, int]
    before: Mapping[str, int]
    more: Mapping[str, Any] = {}
    works: int = 0

    @property
    def drafts(self) -> Mapping[str, Sequence[int]]:
        """The draft tokens of each request."""
        drafts: Mapping[str, Sequence[int]] = self.output.scheduled_spec_decode_tokens
        return drafts

    def next_of(self, name: str) -> int:
        """The number of tokens that the answer of a request has after the step, if it samples."""
        lost = len(self.drafts.get(name, ())) - self.accepted.get(name, 0)
        return self.before[name] + 1 - lost


class Executor:
    """All workers of an engine, behind the interface that `EngineCore` has for them. Each has
    layers with these `specs` and `memory` in bytes, and supports these `layouts`, the best first.
    They keep the `configs` of the KV caches that they receive, and `known_tokens`, a new largest
    length. A step predicts `drafts` tokens, of which the first `accepts` are accepted, and so many
    steps are `in_flight`, also those of one request if steps overlap (`overlaps`). A question of an
    engine to which kvproof has no answer is recorded.

    `began` is called with what the scheduler gave for each step, `settled` when the engine waits
    for its device, `moment` when it asks for a step's output, and `reported` with each report of
    ended transfers. The workers keep `executed`, the steps that they were given since somebody
    looked, as plain data, and `begun`, their number. They keep the `batch` of requests, in
    `computed` how many tokens of each are computed and not rejected, and `transfers`, the transfers
    of each request. `notified` has the requests whose prefill node was
    notified. `masks` has the number of tokens that the mask for a token took into account, by
    request and by the number of tokens before it. For `unsure` requests these numbers are wrong
    from some step on, because rejected draft tokens were counted. `thinks` has the number of tokens
    of reasoning with which the answer of a request begins, and `stops` the number of the token that
    ends it, if its model does. Each `misses`-th token of an answer is predicted wrongly. `asleep`
    are the parts of the memory that are given up. The `workers` of the kit, if there are any, carry
    out the steps. A core without a start-up has the `planned` KV caches. The workers of a model
    that `pools` answer a request with a vector."""

    def __init__(
        self,
        drafts: int,
        in_flight: int,
        overlaps: bool,
        specs: Sequence[Mapping[str, Any]] = (),
        memory: Sequence[int] = (),
        layouts: Sequence[str] = LAYOUTS,
        pools: bool = False,
    ) -> None:
        self.pools, self.supported_tasks = pools, (POOLING if pools else "generate",)
        self.drafts = self.accepts = drafts
        self.in_flight = in_flight
        self.specs, self.memory, self.layouts = specs, memory, layouts
        self.configs: Sequence[Any] = ()
        self.known_tokens: int | None = None
        self.unanswered: list[str] = []
        self.steps = self.tokens = self.begun = 0
        self.executed: list[object] = []
        self.began: Callable[[Any], None] = lambda _: None
        self.settled: Callable[[], None] = lambda: None
        self.moment: Callable[[], None] = lambda: None
        self.reported: Callable[[Any, Mapping[str, set[str]]], None] = lambda *_: None
        self.batch = Batch(overlaps)
        self.computed: dict[str, int] = {}
        self.transfers: dict[str, str] = {}
        self.reports: dict[str, set[str]] = {}
        self.notified: set[str] = set()
        self.masks: dict[tuple[str, int], int | None] = {}
        self.unsure: set[str] = set()
        self.thinks: Mapping[str, int] = {}
        self.stops: Mapping[str, int] = {}
        self.misses = 0
        self.asleep: frozenset[str] = frozenset()
        self.workers: Workers | None = None
        self.planned: Any = None
        self._computed: deque[_Step] = deque()
        self._sampled: _Step | None = None

    def spare(self, error: Exception) -> None:
        """Raise AdapterDrift where the engine asked a question to which kvproof has no answer: the
        exception is then not vLLM's mistake."""
        for name in self.unanswered[:1]:
            why = f"An engine of this vLLM needs {name}"
            raise AdapterDrift(why, f"EngineCore.{name}") from error

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        self.unanswered += [name] * (name not in ANSWERLESS)
        return lambda *_, **__: None

    # What `EngineCore` asks while it starts.

    def get_kv_cache_specs(self, *_: Any) -> list[dict[str, Any]]:
        """The spec of each layer, for each worker."""
        return [dict(each) for each in self.specs]

    def determine_available_memory(self, *_: Any) -> list[int]:
        """The memory for KV caches, in bytes, for each worker."""
        return list(self.memory)

    def get_supported_kv_cache_layouts(self, *_: Any) -> list[list[str]]:
        """The layouts that the backends support, for each worker."""
        return [[*self.layouts] for _ in self.specs]

    def initialize_from_config(self, configs: Sequence[Any], *_: Any) -> None:
        """Allocate the caches of the workers."""
        self.configs = configs

    # What `EngineCore` calls when it runs.

    @property
    def max_concurrent_batches(self) -> int:
        """The number of steps in flight. Later releases read it off their config."""
        return self.in_flight

    @property
    def is_sleeping(self) -> bool:
        """Whether some part of the memory is given up."""
        return bool(self.asleep)

    def sleep(self, *_: Any, **__: Any) -> None:
        """Give up the memory."""
        self.asleep = MEMORY

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Restore the memory, or only these parts of it."""
        self.asleep = self.left_asleep(tags)

    def left_asleep(self, tags: Sequence[str] | None = None) -> frozenset[str]:
        """The parts of the memory that are still given up after these parts, or without `tags` all
        parts, are restored."""
        return self.asleep - frozenset(tags or MEMORY)

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: tuple[Any, ...] = (), *_: Any, **__: Any
    ) -> list[Any]:
        """Send a message to all workers."""
        del timeout
        if getattr(method, "__name__", "") == MEASURES:
            return [ENCODED]
        if method == "update_max_model_len":
            self.known_tokens = args[0]
        if method == "synchronize_device":
            self.settled()
        return [None for _ in self.specs]

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Begin a step."""
        output = scheduler_output
        for name in output.finished_req_ids:
            self.batch.prompts.pop(name, None)
        if self.workers is None:
            self._transfer(output.kv_connector_metadata)
        self.steps += 1
        self.begun += 1
        self.executed.append(shown.plain(output))
        count = output.total_num_scheduled_tokens
        self.tokens += count
        self.began(output)
        step = self._step(output)
        if self.workers is None:
            step = step._replace(more={"kv_connector_output": self._reported()})
        else:
            more = self.workers.execute(output, step.parts, self.batch.tables)
            self._note_loads(more.get("kv_connector_output"))
            step = step._replace(more=more, works=self.workers.clock.order.computed)
        if count and not (self._encodes or self.pools):
            # Sampling is a call of its own.
            self._computed.append(step)
            return StepOutput(None, lambda: None) if non_block else None
        return self._handed_out(step, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Sample the tokens of the oldest step that has begun."""
        step = self._computed.popleft()
        knows = known(grammar_output, step.drafts, self.drafts)
        for name in (part.request for part in step.parts if part.samples):
            drafts = step.drafts.get(name, ())
            if name in knows and UNKNOWN in drafts:  # no mask was made for them: none is accepted
                step.accepted[name] = 0
                self.unsure.add(name)
            rows: Sequence[int | None] = knows.get(name, [None] * (1 + len(drafts)))
            first = step.before[name] - len(drafts)
            self.masks |= {(name, first + at): row for at, row in enumerate(rows)}
        return self._handed_out(step, non_block)

    def take_draft_token_ids(self) -> Any:
        """The draft tokens that are predicted after the last sampled tokens."""
        step = self._sampled
        parts = step.parts if step else ()
        made = drafted([part.request for part in parts if part.samples], self.drafts)
        for name, tokens in zip(made.req_ids, made.draft_token_ids, strict=True):
            if step is not None:
                self._put_ends(name, step.next_of(name), tokens)
        return made

    def _handed_out(self, step: _Step, non_block: bool) -> Any:
        if self._encodes:
            made = encoded(step.output, **step.more)
        elif self.pools:
            made = pooled(step.parts, **step.more)
        else:
            made = sampled(step.parts, step.accepted, **step.more)
        for part, tokens in zip(step.parts, made.sampled_token_ids, strict=True):
            self._put_ends(part.request, step.next_of(part.request) - len(tokens), tokens)
        self._sampled = step
        output = StepOutput(made, partial(self._taken, step))
        return output if non_block else output.result()

    def _put_ends(self, name: str, first: int, tokens: list[int]) -> None:
        """Put the end of the reasoning, and that of the answer, into the tokens of an answer where
        they lie among them. The first of the tokens has the number `first` in the answer."""
        for ends, token in ((self.thinks, END_OF_REASONING), (self.stops, END_ID)):
            at = ends.get(name, 0) - 1 - first
            if 0 <= at < len(tokens):
                tokens[at] = token

    def _taken(self, step: _Step) -> None:
        self.moment()
        self.steps -= 1
        if self.workers is not None:
            self.workers.clock.order.finish(step.works)

    # The requests of a step.

    @property
    def _encodes(self) -> bool:
        return self.workers is not None and self.workers.encodes

    def _step(self, output: Any) -> _Step:
        """The parts of a step. A request that waited has, in its first step, at most places for
        drafts that no drafter has made (vllm#45237); all of them are rejected. Where steps overlap,
        the scheduler does not know yet which drafts were rejected."""
        self.batch.update(output)
        samples, starts = self.batch.samples(output), self.batch.starts(output)
        begun = self.batch.begun(output)
        drafts = output.scheduled_spec_decode_tokens
        accepted, parts, before = dict[str, int](), [], dict[str, int]()
        for name, count in output.num_scheduled_tokens.items():
            known = starts[name] if name in begun else self.computed.get(name, starts[name])
            start = min(starts[name], known)
            before[name] = start + count - self.batch.prompts[name]
            if name in drafts:
                first = before[name] - len(drafts[name])
                right = self._right(first, len(drafts[name]))
                accepted[name] = min(right, self.accepts) * (name not in begun)
            rejected = self.batch.ahead(output, name) - accepted.get(name, 0)
            end = self.computed[name] = start + count - rejected
            parts.append(ComputedPart(name, start, end, rejected, samples[name]))
        return _Step(output, parts, accepted, before)

    def _right(self, first: int, number: int) -> int:
        """How many of so many drafts for an answer, from the token with the number `first` on, are
        right before the first wrong one."""
        places = range(first, first + number)
        wrong = (n for n, at in enumerate(places) if self.misses and not (at + 1) % self.misses)
        return next(wrong, number)

    # Transfers.

    def _note_loads(self, report: Any) -> None:
        """Say which loads have ended, by the report of the kit's workers."""
        if report is not None:
            self.reported(report, {LOADS: set(report.finished_recving or ())})

    def _transfer(self, metadata: Any) -> None:
        if metadata is None:
            return
        for name, meta in metadata.reqs_to_recv.items():
            if adapt.awaits_read(meta):
                self.transfers[name] = "load"
            else:
                self.notified.add(name)
        for name in metadata.reqs_to_send:
            self.transfers[name] = "send"

    def arrive(self, name: str, fails: bool = False) -> None:
        """End the transfer of a request, if there is one; a later step reports it."""
        kind = self.transfers.get(name, "")
        if not kind:
            return
        if kind == "load":
            self.notified.add(name)
        kinds = ["finished_sending" if kind == "send" else LOADS]
        if kind == "load" and fails and adapt.reports_failed_reads():
            kinds.append("failed_recving")
        for each in kinds:
            self.reports.setdefault(each, set()).add(name)

    def _reported(self) -> Any:
        reports, self.reports = self.reports, {}
        for names in reports.values():
            for name in names:
                self.transfers.pop(name, None)
        if not reports:
            return None
        report = adapt.finished(reports)
        self.reported(report, reports)
        return report
