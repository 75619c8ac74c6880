"""The fronts of an engine, `LLMEngine` and `AsyncLLM`: which statistics of the engine they pass on
to its user. An engine usually has one front; here both get all outputs of the engine.

The statistics that `AsyncLLM` passes on are exported as metrics, which an operator reads from
vLLM's Prometheus logger. A process has one logger for all engines, so the numbers of one engine are
differences from the values at its start.

Both sides of the connector count the transfers that end: the scheduler all, the workers loads. The
block pool counts look-ups.
"""

import copy
import functools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from kvproof.live import adapt
from kvproof.live.contract.lookup import last_line
from kvproof.live.core.layers import config_of
from kvproof.live.fake import Fake, FakeSpace, unstarted
from kvproof.live.observer.hooks import hooked
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Counts, Exported
from kvproof.model.plans.engine import given

LOGGER = "PrometheusStatLogger"

COUNTED = "generation_tokens_total", "iteration_tokens_total_sum"
"""The metrics that count the tokens of answers, and the tokens of all steps."""

NOW = "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"
"""The metrics with the running requests, the waiting requests, and the share of blocks that is not
free."""


class Metrics:
    """The metrics of one engine."""

    def __init__(self) -> None:
        self._logger = _logger()
        self._before = _values(COUNTED)
        self._recorded = False

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """Record the statistics of a step, as a front does."""
        self._logger.record(scheduler_stats, iteration_stats)
        self._recorded = True

    def exported(self) -> Exported:
        """The numbers that the engine has added and, once anything was recorded, the current
        values."""
        values = zip(_values(COUNTED), self._before, strict=True)
        answered, computed = (int(value - before) for value, before in values)
        return Exported(answered, computed, _values(NOW) if self._recorded else ())


@functools.cache
def _logger() -> Any:
    """Make the logger. Raises AdapterDrift where this vLLM has none."""
    plain = given()
    try:
        return adapt.named(LOGGER)(config_of(plain, plain.blocks))
    except Exception as error:
        raise AdapterDrift(
            f"The metrics of this vLLM need more ({last_line(error)})", LOGGER
        ) from error


def _values(names: Sequence[str]) -> tuple[float, ...]:
    """The exported values of these names of vLLM. Raises AdapterDrift where a name is missing."""
    from prometheus_client import REGISTRY

    names = [f"vllm:{name}" for name in names]
    found: dict[str, float] = {}
    for metric in REGISTRY.restricted_registry(names).collect():
        found |= {sample.name: sample.value for sample in metric.samples}
    lacking = next((name for name in names if name not in found), "")
    if lacking:
        raise AdapterDrift(f"This vLLM exports no {lacking}", LOGGER)
    return tuple(found[name] for name in names)


def fronts(metrics: Metrics, *, log_stats: bool = True) -> Mapping[str, "Front"]:
    """The fronts of this release by name, with statistics if `log_stats`. Raises AdapterDrift where
    one cannot be made without a server: then nobody would see what it drops."""
    return {
        "AsyncLLM": _Asynchronous(metrics, log_stats=log_stats),
        "LLMEngine": _Synchronous(log_stats=log_stats),
    }


class _Engine(Fake):
    """A fake of the engine behind a front: it passes on the outputs that it is given."""

    def __init__(self) -> None:
        self.outputs: deque[Any] = deque()

    def get_output(self) -> Any:
        """Return the outputs of a step."""
        return self.outputs.popleft()

    async def get_output_async(self) -> Any:
        """Return the outputs of a step, once there are some."""
        while not self.outputs:
            await Moment()
        return self.outputs.popleft()

    def abort_requests(self, _names: list[str]) -> None:
        """Do nothing: the front knows no request and aborts none."""


class Moment:
    """Something to wait for."""

    def __await__(self) -> Any:
        yield


class Front(ABC):
    """A front of an engine. The statistics that it passes on are recorded in `metrics`. It knows of
    these images that its engine has `forgotten` them."""

    kind = ""
    queue: Any = None

    def __init__(self, metrics: Metrics | None = None, *, log_stats: bool = True) -> None:
        from vllm.v1.engine.output_processor import OutputProcessor

        self.passed: list[Any] = []
        self.forgotten: list[str] = []
        self.failed: Exception | None = None
        self.metrics = metrics
        self.engine = _Engine()
        self.front = front = unstarted(adapt.named(self.kind))
        front.engine_core = self.engine
        front.log_stats, front.output_handler = log_stats, None
        front.should_execute_dummy_batch = False
        front.output_processor = OutputProcessor(None, log_stats=log_stats)
        front.output_processor.propagate_error = self._ended
        front.logger_manager = FakeSpace(record=self._record)
        front.do_log_stats_with_interval = lambda: None
        images = FakeSpace(stat_mm_cache=lambda: None)
        images.__dict__["mm_processor_cache"] = FakeSpace(invalidate=self.forgotten.append)
        front.renderer = front.processor = front.input_processor = images

    def _record(self, *, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        self.passed.append(scheduler_stats)
        try:
            if self.metrics is not None:
                self.metrics.record(scheduler_stats, iteration_stats)
        except Exception as error:  # of vLLM's logger; the front would catch it
            self.failed = error

    def _ended(self, error: Exception) -> None:
        """Record the exception with which the front passes nothing more on."""
        self.failed = self.failed or error

    def add(self, request: Any) -> None:
        """Pass a request to the engine."""
        self.front.output_processor.add_request(request, None, queue=self.queue)

    def take(self, outputs: Any) -> list[Any]:
        """Pass on the outputs of a step. Raises the exception of vLLM's logger, and that with which
        the front ends."""
        self.engine.outputs.append(outputs)
        self.passed.clear()
        self._step()
        if self.failed is not None:
            raise self.failed
        return [each for each in self.passed if each is not None]

    @abstractmethod
    def _step(self) -> None:
        """Let the front take the outputs of a step."""


class _Synchronous(Front):
    kind = "LLMEngine"

    def _step(self) -> None:
        self.front.step()


class _Asynchronous(Front):
    kind = "AsyncLLM"
    queue = FakeSpace(put=lambda _: None)

    def __init__(self, metrics: Metrics, *, log_stats: bool) -> None:
        super().__init__(metrics, log_stats=log_stats)
        started: list[Coroutine[Any, Any, None]] = []
        tasks = SimpleNamespace(create_task=started.append, sleep=lambda _: Moment())
        with patch("vllm.v1.engine.async_llm.asyncio", tasks):
            self.front._run_output_handler()
        if not started:
            raise AdapterDrift("The front of this vLLM reads its outputs elsewhere", self.kind)
        self.handler = started[0]
        self.handler.send(None)

    def _step(self) -> None:
        try:
            while self.engine.outputs:
                self.handler.send(None)
        except StopIteration:
            if self.failed is None:
                raise AdapterDrift(
                    "The front of this vLLM stops at its first output", self.kind
                ) from None


NAME = "transfers"


class Statistics:
    """The counts that both sides of the connector and the pool `noted`, and the counts that the
    user of each front `received`, by the front's name. Without `log_stats` there are none."""

    def __init__(self, *, log_stats: bool = True) -> None:
        self.log_stats = log_stats
        self.noted = Counts()
        self.metrics = Metrics()
        self.fronts: Mapping[str, Front] = fronts(self.metrics, log_stats=log_stats)
        self.received = {name: Counts() for name in self.fronts}
        self._waiting = 0

    def install(self, scheduler: Any) -> None:
        """Let the scheduler side of the connector, and the block pool, count from now on."""
        if not self.log_stats:
            return
        hooked(scheduler.kv_cache_manager, "make_prefix_cache_stats", after=self._made)
        connector = scheduler.connector
        if connector is not None:
            update = "update_connector_output", "connector_output"
            hooked(connector, *update, after=self._updated)
            connector.get_kv_connector_stats = self._take

    def _made(self, stats: Any) -> None:
        if stats is not None:
            self.noted += Counts(lookups=stats.requests)

    def _updated(self, _answer: None, output: Any) -> None:
        ended = len(output.finished_recving or ()) + len(output.finished_sending or ())
        self.noted += Counts(ended)
        self._waiting += ended

    def _take(self, *_: Any, **__: Any) -> Any:
        ended, self._waiting = self._waiting, 0
        return _made(ended) if ended else None

    def exported(self) -> Exported | None:
        """What the metrics of the engine say; None where it makes no statistics."""
        return self.metrics.exported() if self.log_stats else None

    def of_workers(self, report: Any, reports: Mapping[str, set[str]]) -> None:
        """Put the counts of the workers into their report, in place of what a connector counts."""
        if not self.log_stats:
            return
        loads = len(reports.get("finished_recving", ()))
        report.kv_connector_stats = None
        if loads:
            report.kv_connector_stats = _made(loads)
            self.noted += Counts(loads)

    def add(self, request: Any) -> None:
        """Pass a request to the engine through each front. Each is another process, with its own
        objects: vLLM adds the later parts of a session to a list of the request."""
        for front in self.fronts.values():
            front.add(copy.deepcopy(request))

    def untold(self, image: str) -> tuple[str, ...]:
        """The fronts that do not know that the engine has forgotten an image."""
        return tuple(name for name, each in self.fronts.items() if image not in each.forgotten)

    def receive(self, outputs: Any) -> None:
        """Let the user of each front receive the outputs of a step."""
        for name, front in self.fronts.items():
            for stats in front.take(outputs):
                ended = (stats.kv_connector_stats or {}).get(NAME, 0)
                self.received[name] += Counts(ended, stats.prefix_cache_stats.requests)


def _made(count: int) -> Any:
    """Make statistics of this number of transfers, as vLLM's KVConnectorStats."""

    def aggregate(self: Any, other: Any) -> Any:
        self.data[NAME] += other.data[NAME]
        return self

    own = {"aggregate": aggregate, "is_empty": lambda self: not self.data[NAME]}
    return type("TransferStatistics", (KVConnectorStats,), own)(data={NAME: count})
