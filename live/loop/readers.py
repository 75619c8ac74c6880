"""The fronts of an engine, `LLMEngine` and `AsyncLLM`: which statistics of the engine they pass on
to its user. An engine usually has one front; here both get all outputs of the engine. The
statistics that `AsyncLLM` passes on are exported as metrics."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvproof.live import adapt
from kvproof.live.fake import Fake, FakeSpace, unstarted
from kvproof.live.loop.metrics import Metrics
from kvproof.model.errors import AdapterDrift


def fronts(metrics: Metrics) -> Mapping[str, "Front"]:
    """The fronts of this release by name. Raises AdapterDrift where one cannot be made without a
    server: then nobody would see what it drops."""
    return {"AsyncLLM": _Asynchronous(metrics), "LLMEngine": _Synchronous()}


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
            await _Moment()
        return self.outputs.popleft()

    def abort_requests(self, _names: list[str]) -> None:
        """Do nothing: the front knows no request and aborts none."""


class _Moment:
    """Something to wait for."""

    def __await__(self) -> Any:
        yield


class Front(ABC):
    """A front of an engine. The statistics that it passes on are recorded in `metrics`."""

    kind = ""
    queue: Any = None

    def __init__(self, metrics: Metrics | None = None) -> None:
        from vllm.v1.engine.output_processor import OutputProcessor

        self.passed: list[Any] = []
        self.metrics = metrics
        self.engine = _Engine()
        self.front = front = unstarted(adapt.first([self.kind]))
        front.engine_core = self.engine
        front.log_stats, front.output_handler = True, None
        front.should_execute_dummy_batch = False
        front.output_processor = OutputProcessor(None, log_stats=True)
        front.logger_manager = FakeSpace(record=self._record)
        front.do_log_stats_with_interval = lambda: None
        images = FakeSpace(stat_mm_cache=lambda: None)
        images.__dict__["mm_processor_cache"] = None
        front.renderer = front.processor = front.input_processor = images

    def _record(self, *, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
        self.passed.append(scheduler_stats)
        if self.metrics is not None:
            self.metrics.record(scheduler_stats, iteration_stats)

    def add(self, request: Any) -> None:
        """Pass a request to the engine."""
        self.front.output_processor.add_request(request, None, queue=self.queue)

    def take(self, outputs: Any) -> list[Any]:
        """Pass on the outputs of a step."""
        self.engine.outputs.append(outputs)
        self.passed.clear()
        self._step()
        return [each for each in self.passed if each is not None]

    @abstractmethod
    def _step(self) -> None:
        """Let the front take the outputs of a step."""


class _Synchronous(Front):
    kind = "vllm.v1.engine.llm_engine:LLMEngine"

    def _step(self) -> None:
        self.front.step()


class _Asynchronous(Front):
    kind = "vllm.v1.engine.async_llm:AsyncLLM"
    queue = FakeSpace(put=lambda _: None)

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        started: list[Coroutine[Any, Any, None]] = []
        tasks = SimpleNamespace(create_task=started.append, sleep=lambda _: _Moment())
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
            raise AdapterDrift(
                "The front of this vLLM stops at its first output", self.kind
            ) from None
