"""The workers of an engine whose loop runs. They sample tokens without a model, keep what a step
says of its requests, and transfer KV when the plan says so."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from vllm.v1.outputs import ModelRunnerOutput

from kvproof.live import adapt
from kvproof.live.driver import nixl
from kvproof.live.loop.grammars import known
from kvproof.live.startup.engine import Executor
from kvproof.live.startup.plan import StartupPlan
from kvproof.live.step_output import sampled
from kvproof.model.state import Flight


class StepOutput(Future[Any]):
    """The output of a step, which is ready when it is first wanted."""

    def __init__(self, value: Any, wanted: Callable[[], None]) -> None:
        super().__init__()
        self._wanted = wanted
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        """The output."""
        wanted, self._wanted = self._wanted, lambda: None
        wanted()
        return super().result(timeout)


class LoopExecutor(Executor):
    """All workers of the engine. `moment` is called when a step's output is wanted. `prompts` and
    `transfers` are what the workers keep: the number of prompt tokens of each request that was
    scheduled, and what is transferred for each request. `notified` are the requests whose prefill
    node was notified. `masks` has the number of tokens that the mask for a token knew, by request
    and the number of tokens before it."""

    supported_tasks = ("generate",)
    is_sleeping = False

    def __init__(
        self, plan: StartupPlan, specs: Any, memory: Any, moment: Callable[[], None]
    ) -> None:
        super().__init__(plan, specs, memory)
        self.moment = moment
        self.in_flight = plan.stages if plan.stages > 1 else 1 + plan.overlaps
        self.steps = 0
        self.began: Callable[[int], None] = lambda _: None
        self.settled: Callable[[], None] = lambda: None
        self.prompts: dict[str, int] = {}
        self.transfers: dict[str, str] = {}
        self.reports: dict[str, set[str]] = {}
        self.notified: set[str] = set()
        self.masks: dict[tuple[str, int], int | None] = {}
        self._before: dict[str, int] = {}
        self._computed: deque[tuple[ModelRunnerOutput, dict[str, int]]] = deque()

    # What `EngineCore` calls.

    @property
    def max_concurrent_batches(self) -> int:
        """The number of steps in flight. Later releases read it off their config."""
        return self.in_flight

    def collective_rpc(
        self, method: str, _timeout: Any = None, args: tuple[Any, ...] = (), _kwargs: Any = None
    ) -> list[Any]:
        """All workers receive a message."""
        super().collective_rpc(method, _timeout, args)
        if method == "synchronize_device":
            self.settled()
        return [None for _ in self.specs]

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        """A step begins."""
        for name in output.finished_req_ids:
            self.prompts.pop(name, None)
        self._transfer(output.kv_connector_metadata)
        self.steps += 1
        count = output.total_num_scheduled_tokens
        self.began(count)
        parts = self._parts(output)
        made = sampled(parts, {}, kv_connector_output=self._reported())
        if count:  # sampling is a call of its own
            before = {each.request: self._before[each.request] for each in parts if each.samples}
            self._computed.append((made, before))
            return StepOutput(None, lambda: None) if non_block else None
        return self._handed_out(made, non_block)

    def sample_tokens(self, masks: Any, non_block: bool = False) -> Any:
        """The step that began first samples its tokens."""
        made, before = self._computed.popleft()
        knows = known(masks)
        self.masks |= {(name, tokens): knows.get(name) for name, tokens in before.items()}
        return self._handed_out(made, non_block)

    def _handed_out(self, made: ModelRunnerOutput, non_block: bool) -> Any:
        output = StepOutput(made, self._taken)
        return output if non_block else output.result()

    def _taken(self) -> None:
        self.moment()
        self.steps -= 1

    # The requests of a step.

    def _parts(self, output: Any) -> list[Flight]:
        computed: dict[str, int] = {}
        known: dict[str, int] = {}
        for new in output.scheduled_new_reqs:
            self.prompts[new.req_id] = len(new.prompt_token_ids)
            computed[new.req_id] = new.num_computed_tokens
        running = output.scheduled_cached_reqs
        for name, so_far, answered in zip(
            running.req_ids, running.num_computed_tokens, running.num_output_tokens, strict=True
        ):
            computed[name], known[name] = so_far, answered
        self._before = {
            name: computed[name] + count - self.prompts[name]
            for name, count in output.num_scheduled_tokens.items()
        }
        return [
            Flight(
                name,
                count,
                samples=computed[name] + count >= self.prompts[name] + known.get(name, 0),
            )
            for name, count in output.num_scheduled_tokens.items()
        ]

    # Transfers.

    def _transfer(self, metadata: Any) -> None:
        if metadata is None:
            return
        for name, meta in metadata.reqs_to_recv.items():
            if nixl.awaits(meta):
                self.transfers[name] = "load"
            else:
                self.notified.add(name)
        for name in metadata.reqs_to_send:
            self.transfers[name] = "send"

    def arrive(self, name: str, fails: bool = False) -> None:
        """The transfer of a request ends, if there is one: a later step reports it."""
        kind = self.transfers.get(name, "")
        if not kind:
            return
        if kind == "load":
            self.notified.add(name)
        kinds = ["finished_sending" if kind == "send" else "finished_recving"]
        if kind == "load" and fails and adapt.reports_failed_reads():
            kinds.append("failed_recving")
        for each in kinds:
            self.reports.setdefault(each, set()).add(name)

    def _reported(self) -> Any:
        reports, self.reports = self.reports, {}
        for names in reports.values():
            for name in names:
                self.transfers.pop(name, None)
        return adapt.finished(reports) if reports else None
