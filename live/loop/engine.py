"""The real engine and its real loop, on fake workers. The messages come from a plan."""

import functools
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any
from unittest.mock import patch

from kvproof.live import build, importing  # noqa: F401 (vLLM is imported quietly)

# isort: split

from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
from vllm.v1.engine import EngineCoreRequest, EngineCoreRequestType
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.utils import EngineZmqAddresses

from kvproof.live import adapt, contract_check
from kvproof.live.loop import ready
from kvproof.live.loop.grammars import Grammars, structured
from kvproof.live.loop.worker import LoopExecutor
from kvproof.live.observer import shown
from kvproof.live.startup.engine import config_of, spec_of
from kvproof.model.facts.loop import SizeKnown
from kvproof.model.plans.loop import LENGTH, LoopPlan, Send

PLENTY_BYTES = 1 << 30


class LoopEnd(BaseException):
    """An exception that ends the loop: the plan is over, and the loop would wait or run for
    ever."""


class Core(EngineCoreProc):  # type: ignore[misc]
    """The engine core without sockets: kvproof fills and empties its queues."""

    @contextmanager
    def _perform_handshakes(self, *_: Any, **__: Any) -> Iterator[EngineZmqAddresses]:
        yield EngineZmqAddresses(inputs=[], outputs=[])

    def process_input_sockets(self, *args: Any, **kwargs: Any) -> None:
        """Replace the thread that reads the sockets. The engine waits until that thread is ready,
        so say so at once."""
        for given in (*args, *kwargs.values()):
            if isinstance(given, Event):
                given.set()

    def process_output_sockets(self, *_: Any, **__: Any) -> None:
        """Replace the thread that writes to the sockets by one that does nothing."""


class Messages(queue.Queue[Any]):
    """The queue of messages to an engine. It calls `moment` when the engine looks whether there are
    messages, `waits` when the engine would wait for one, and `taken` for each message that it
    takes."""

    def __init__(
        self, moment: Callable[[], None], waits: Callable[[], None], taken: Callable[[Any], None]
    ) -> None:
        super().__init__()
        self.moment, self.waits, self.taken = moment, waits, taken

    def empty(self) -> bool:
        """Whether the queue has no message."""
        self.moment()
        return not self.qsize()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002
        """The next message. While there is none, `waits` is called, which adds messages or raises;
        the timeout of the engine has no effect."""
        while block and not self.qsize():
            self.waits()
        message = super().get(block=False)
        self.taken(message)
        return message


@contextmanager
def _untuned() -> Iterator[None]:
    """Skip the tuning of the process, because an engine expects its process to itself and has not
    got it here."""
    with ExitStack() as undo:
        for name in ("freeze_gc_heap", "maybe_attach_gc_debug_callback", "enable_envs_cache"):
            undo.enter_context(patch(f"{EngineCoreProc.__module__}.{name}", create=True))
        yield


class EngineLoop:
    """An engine and its loop."""

    def __init__(self, plan: LoopPlan, moment: Callable[[], None]) -> None:
        contract_check.check().require(["engine loop"])
        self.plan = plan
        start = plan.engine
        specs = [
            {name: spec_of(start, layer) for name, layer in each.items()}
            for each in start.workers()
        ]
        memory = [PLENTY_BYTES] * len(specs)
        if plan.fitted:  # some releases fit to the memory alone, others to the given blocks too
            memory = [plan.num_blocks * max(s.page_size_bytes for s in e.values()) for e in specs]
        self.worker = LoopExecutor(start, specs, memory, moment, plan.drafts)
        further: dict[str, Any] = {}
        if plan.drafts:
            further["speculative_config"] = build.drafter(plan.drafts)
        if plan.connected:
            further["kv_transfer_config"] = KVTransferConfig(
                kv_connector="NixlConnector",
                kv_role="kv_both",
                engine_id="E",
                kv_load_failure_policy="recompute" if plan.recompute else "fail",
            )
        config = config_of(start, plan.num_blocks, **further)
        try:
            with _untuned():
                self.core: Any = Core(config, True, "", lambda _: self.worker, True)
        except Exception as error:
            self.worker.spare(error)
            raise
        self.known: tuple[SizeKnown, ...] = ()
        if plan.fitted:
            self.known = ready.known(self.core, config_of(start, plan.num_blocks, **further))
        self.pools = shown.pools(self.core.scheduler)
        self.prefixes: dict[bytes, object] = {}
        self.statistics = self.worker.statistics
        self.statistics.install(self.core.scheduler)
        sent = [each for each in plan.actions if isinstance(each, Send)]
        late = {each.request for each in sent if each.grammar.endswith("late")}
        thinks = {each.request: each.thinks for each in sent if each.thinks}
        self.worker.thinks = thinks
        self.grammars = Grammars(lambda name: name in late, thinks=bool(thinks))
        self.grammars.install(self.core.structured_output_manager)

    def listen(self, messages: Messages) -> None:
        """Give the engine this queue of messages from now on."""
        self.core.input_queue = messages

    def send(self, what: str, message: Any) -> None:
        """Send a message to the engine."""
        self.core.input_queue.put_nowait((getattr(EngineCoreRequestType, what), message))

    def call(self, number: int, method: str, *given: Any) -> None:
        """Call a method as a client does. The answer will have this number."""
        self.send("UTILITY", (0, number, method, given))

    def add(self, one: Send, params: dict[str, Any] | None) -> None:
        """Send a request in the form in which the thread that reads the sockets passes it on."""
        sampling = SamplingParams(
            max_tokens=one.answer,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params} if params else None,
            **structured(one.grammar.split()[0] if one.grammar else ""),
        )
        request = EngineCoreRequest(
            request_id=one.request,
            prompt_token_ids=one.tokens,
            mm_features=None,
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            **adapt.accepted(EngineCoreRequest, external_req_id=one.request),
        )
        self.statistics.add(request)
        self.receive(request)

    def receive(self, request: Any) -> None:
        """Pass on a request from the front."""
        self.send("ADD", self.core.preprocess_add_request(request))

    def cancel(self, name: str) -> None:
        """Abort a request, as its client disconnects."""
        self.core.aborts_queue.put_nowait([name])
        self.send("ABORT", [name])

    def stop(self, drain: bool) -> None:
        """Tell the engine to end, as its signal handler does."""
        self.core.vllm_config.shutdown_timeout = 60 if drain else 0
        self.core.shutdown_state = type(self.core.shutdown_state).REQUESTED
        self.send("WAKEUP", None)

    def outputs(self) -> Iterator[Any]:
        """The outputs for clients since the last call."""
        while not self.core.output_queue.empty():
            yield self.core.output_queue.get_nowait()[1]

    def state(self) -> Iterator[object]:
        """The state of the engine, as plain data."""
        for request in self.core.scheduler.requests.values():
            for at, value in enumerate(map(bytes, request.block_hashes), 1):
                if value not in self.prefixes:
                    self.prefixes[value] = tuple(request.all_token_ids[: at * self.plan.block])
        return shown.state(self.core.scheduler, self.pools, self._prefix)

    def _prefix(self, key: Any) -> object:
        return get_group_id(key), self.prefixes.get(bytes(get_block_hash(key)), "")

    @property
    def held(self) -> int:
        """The number of blocks that are not free, without the null block."""
        pool = self.core.scheduler.kv_cache_manager.block_pool
        return int(self.plan.num_blocks - 1 - pool.get_num_free_blocks())

    def close(self) -> None:
        """Close the resources that the engine has opened."""
        self.core.scheduler.shutdown()


def offer(one: Send, block: int, groups: int) -> dict[str, Any]:
    """The parameters that a prefill node P returned for a request."""
    params = dict(_offer(block, groups))
    blocks = -(-len(one.tokens) // block)
    params["remote_block_ids"] = tuple(list(g)[:blocks] for g in params["remote_block_ids"])
    return {**params, "remote_engine_id": "P", "remote_request_id": f"P-{one.request}"}


@functools.cache
def _offer(block: int, groups: int) -> dict[str, Any]:
    """The parameters that this release returns for a prompt of the largest length."""
    prompt = Send(0, "p", 0, LENGTH - 1, 1, "prefill")
    plan = LoopPlan((), block, connected=True, window=5 * (groups > 1))
    engine = EngineLoop(plan, lambda: None)
    params: dict[str, Any] = {}

    def waits() -> None:
        raise LoopEnd

    engine.listen(Messages(lambda: None, waits, lambda _: None))
    engine.add(prompt, {"do_remote_decode": True, "do_remote_prefill": False})
    for _ in range(LENGTH):
        engine.core._process_input_queue()
        engine.core._process_engine_step()
        for outputs in engine.outputs():
            for each in outputs.outputs:
                params = each.kv_transfer_params or params
        if params:
            break
    engine.close()
    return params
