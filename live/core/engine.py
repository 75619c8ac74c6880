"""The real engine core on fake workers, and the messages that come to it."""

import functools
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest.mock import patch

from kvproof.live import importing  # noqa: F401 (vLLM is imported quietly)

# isort: split

from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType
from vllm.v1.engine.core import EngineCoreProc, MsgpackDecoder, MsgpackEncoder
from vllm.v1.engine.utils import EngineZmqAddresses

from kvproof.live import adapt, blame, contract_check
from kvproof.live.contract.features import KIT
from kvproof.live.core.caches import Caches
from kvproof.live.core.executor import LAYOUTS, POOLING, Executor
from kvproof.live.core.grammars import structured
from kvproof.live.core.layers import config_of, spec_of
from kvproof.live.core.sockets import TO_CLIENT, TO_ENGINE, Outputs, Sockets
from kvproof.live.fake import FakeSpace
from kvproof.live.marks import mark
from kvproof.live.observer import shown
from kvproof.live.observer.hooks import around
from kvproof.live.observer.view import HashedTokens
from kvproof.live.step_output import END_ID
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.connectors import Fact
from kvproof.model.facts.startup import StartedGroup
from kvproof.model.plans.engine import EnginePlan

ALONE = "alone"
"""The name of the request that runs alone, before clients send messages."""

PLENTY_BYTES = 1 << 30

REFUSALS = (ValueError, NotImplementedError)
"""The exceptions with which vLLM says that it cannot serve a model, or not with this little
memory."""


def text_of(request: Any) -> str:
    """The prompt of a request as the kit has it: a character for each token."""
    return "".join(map(chr, request.prompt_token_ids))


def _named(image: str) -> list[Any]:
    """An image of one token at the beginning of a prompt, by its name."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    return [MultiModalFeatureSpec(None, "image", image, PlaceholderRange(0, 1))]


def _unlike(repeats: int) -> dict[str, Any]:
    """The argument of `SamplingParams` by which an answer ends with so many equal tokens; no
    argument without a number."""
    if not repeats:
        return {}
    params = adapt.named("RepetitionDetectionParams")
    return {"repetition_detection": params(max_pattern_size=1, min_count=repeats)}


class LoopEnd(BaseException):
    """An exception that ends the loop: the plan is over, and the loop would wait or run for
    ever."""


class Core(EngineCoreProc):  # type: ignore[misc]
    """The engine core with the `sockets` of kvproof, whose threads work when they are told to."""

    sockets: Sockets

    @contextmanager
    def _perform_handshakes(self, *_: Any, **__: Any) -> Iterator[EngineZmqAddresses]:
        yield EngineZmqAddresses(inputs=[TO_ENGINE], outputs=[TO_CLIENT])


class PlannedCore(Core):
    """An engine core without its start-up: the executor has the KV caches of its scheduler."""

    def _initialize_kv_caches(self, *_: Any, **__: Any) -> Any:
        return adapt.initialized(EngineCoreProc._initialize_kv_caches, self.model_executor.planned)

    def abort_requests(self, request_ids: Iterable[str], *args: Any, **kwargs: Any) -> None:
        """Abort one request after the other. vLLM reads those that it aborts together from a set,
        whose order, and so that of the freed blocks, depends on the seed of hashes."""
        for name in request_ids:
            super().abort_requests([name], *args, **kwargs)


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
            place = f"{EngineCoreProc.__module__}.{name}"
            undo.enter_context(patch(place, lambda *_, **__: None, create=True))
        yield


def core_of(
    config: Any, executor: Executor, kind: type[Core] = Core, *, log_stats: bool = True
) -> Any:
    """Start an engine core with this config and these workers, and statistics if `log_stats`. Its
    steps let requests that ended together leave in order. Raises the exceptions of its start-up,
    and AdapterDrift."""
    sockets = Sockets()
    try:
        with _untuned(), sockets.making_threads():
            core = kind(config, True, "", lambda _: executor, log_stats)
    except REFUSALS:
        raise
    except Exception as error:
        executor.spare(error)
        raise
    core.sockets, core.output_queue = sockets, Outputs()
    core.preprocess_add_request = _spared(core.preprocess_add_request, executor)
    around(core.scheduler, "schedule", lambda *_: adapt.order_ended(core.scheduler))
    return core


def _spared(prepare: Callable[..., Any], executor: Executor) -> Callable[..., Any]:
    """The function that prepares a request. The thread that calls it answers any exception with an
    error; one that kvproof caused is AdapterDrift, which it passes on."""

    @functools.wraps(prepare)
    def prepared(*args: Any, **kwargs: Any) -> Any:
        try:
            return prepare(*args, **kwargs)
        except Exception as error:
            blame.spare(error)
            executor.spare(error)
            raise

    return prepared


class Store(Protocol):
    """A connector of the kit, and its settings of `KVTransferConfig`. `begin` begins a process for
    the next engine, and what is behind the connector is empty. `observe` makes the observed
    workers (`ObservedEngine`) of an engine that has started with these cache groups. `breaks` says
    whether facts break a check, of which the first `before` are known."""

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def begin(self) -> None: ...
    def observe(
        self, plan: EnginePlan, scheduler: Any, groups: tuple[StartedGroup, ...]
    ) -> Any: ...
    def breaks(self, facts: Sequence[Fact], before: int) -> bool: ...


class Engine:
    """An engine core and its workers, after its start-up on workers with so much `memory` in bytes.
    `override` is its `num_gpu_blocks_override`. It may have a `store`. Raises the exceptions of its
    start-up, and AdapterDrift."""

    def __init__(
        self,
        plan: EnginePlan,
        memory: Sequence[int],
        override: int | None,
        store: Store | None = None,
    ) -> None:
        needs = ["start-up", *["pooling"] * plan.pools, *[KIT] * (store is not None)]
        contract_check.check().require(needs)
        self.plan, self.override, self.store = plan, override, store
        first = LAYOUTS.index(plan.layout)
        self.executor = Executor(
            plan.drafts,
            plan.stages if plan.stages > 1 else 1 + plan.overlaps,
            plan.overlaps and plan.stages == 1,
            [{n: spec_of(plan, layer) for n, layer in each.items()} for each in plan.workers()],
            memory,
            (*LAYOUTS[first:], *LAYOUTS[:first]),
            pools=plan.pools,
        )
        if store is not None:
            store.begin()
        config = config_of(plan, override, store.settings if store is not None else None)
        log_stats = not plan.without_statistics
        self.core = core_of(config, self.executor, log_stats=log_stats)
        self._encoder, self._decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        self.pools = shown.pools(self.core.scheduler)
        of_engine = self.vllm_config.cache_config.block_size
        self.hashed = HashedTokens(getattr(self.core.scheduler, "hash_block_size", of_engine))
        self.observed: Any = None
        if store is not None:
            parts = plan, self.core.scheduler, self.caches.groups
            self.observed = self.executor.workers = store.observe(*parts)

    @property
    def vllm_config(self) -> Any:
        """The config of the engine, with what its start-up has set."""
        return self.core.vllm_config

    @property
    def max_model_len(self) -> int:
        """The largest number of tokens of a request."""
        return int(self.vllm_config.model_config.max_model_len)

    @property
    def answer_alone(self) -> int:
        """The number of tokens that the request which runs alone is answered."""
        return 0 if self.plan.pools else min(self.plan.answer_tokens, self.max_model_len - 1)

    @property
    def in_flight_steps(self) -> int:
        """The number of steps that are scheduled before the output of the first arrives."""
        return getattr(self.vllm_config, "max_concurrent_batches", 0) or self.executor.in_flight

    @property
    def caches(self) -> Caches:
        """The KV caches that the start-up made."""
        return Caches(self.vllm_config, self.core.scheduler.kv_cache_config)

    def listen(self, messages: Messages, noted: Callable[[Any], None]) -> None:
        """Give the engine this queue of messages from now on, and call `noted` with each of its
        outputs."""
        self.core.input_queue, self.core.output_queue.noted = messages, noted

    @property
    def ready(self) -> bytes:
        """The message with which the engine says that it is ready."""
        self.core.sockets.read()
        return bytes(self.core.sockets.ready)

    def send(self, what: str, message: Any) -> None:
        """Send a message to the engine, as its client does."""
        kind = getattr(EngineCoreRequestType, what).value
        self.core.sockets.send([kind, *self._encoder.encode(message)])

    def read(self) -> None:
        """Let the engine read what was sent to it."""
        self.core.sockets.read()

    @property
    def unread(self) -> int:
        """The number of messages that wait for the loop of the engine."""
        return int(self.core.input_queue.qsize())

    @property
    def unsent(self) -> int:
        """The number of messages that wait for the thread which sends them to clients."""
        return int(self.core.output_queue.qsize())

    def call(self, number: int, method: str, *given: Any) -> None:
        """Call a method as a client does. The answer will have this number."""
        self.send("UTILITY", (0, number, method, given))

    def request(
        self,
        name: str,
        tokens: Sequence[int],
        answer: int,
        params: Mapping[str, Any] | None = None,
        grammar: str = "",
        *,
        resumable: bool = False,
        priority: int = 0,
        stops: bool = False,
        repeats: int = 0,
        image: str = "",
    ) -> EngineCoreRequest:
        """A request as a front sends it, with these `kv_transfer_params`, and with a grammar. If it
        is `resumable`, it is a part of a session, and others follow. If it `stops`, a token of its
        model ends the answer; so do so many `repeats` of a token. Of its `image`, it has the name
        alone."""
        sampling = pooling = None
        if self.plan.pools:
            pooling = adapt.named("PoolingParams")(task=POOLING)
        else:
            sampling = SamplingParams(
                max_tokens=answer,
                ignore_eos=True,
                stop_token_ids=[END_ID] if stops else None,
                extra_args={"kv_transfer_params": params} if params else None,
                **structured(grammar),
                **_unlike(repeats),
            )
        return EngineCoreRequest(
            request_id=name,
            prompt_token_ids=list(tokens),
            mm_features=_named(image) if image else None,
            sampling_params=sampling,
            pooling_params=pooling,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            **adapt.accepted(
                EngineCoreRequest, external_req_id=name, resumable=resumable, priority=priority
            ),
        )

    def forget_images(self) -> None:
        """Give the engine vLLM's cache of images, without images."""
        memory = FakeSpace(mm_processor_cache_gb=1)
        kind = adapt.named("LruKeyReplicatedReceiverCache")
        made = kind(FakeSpace(get_multimodal_config=lambda: memory))
        if not hasattr(self.core, "mm_receiver_cache"):
            why = "An engine of this vLLM keeps its images elsewhere"
            raise AdapterDrift(why, "EngineCore.mm_receiver_cache")
        self.core.mm_receiver_cache = made

    def add(self, request: EngineCoreRequest) -> Any:
        """Give a request to the scheduler at once. Returns vLLM's own form of it."""
        made = self.core.preprocess_add_request(request)[0]
        if self.observed is not None:
            self.observed.arrive(made, text_of(made))
        self.core.scheduler.add_request(made)
        return made

    def step(self) -> None:
        """Let the engine take a step, without its loop."""
        self.core._process_engine_step()

    def stop(self, drain: bool) -> None:
        """Tell the engine to end, as its signal handler does."""
        self.core.vllm_config.shutdown_timeout = 60 if drain else 0
        self.core.shutdown_state = type(self.core.shutdown_state).REQUESTED
        self.core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))

    @property
    def is_ending(self) -> bool:
        """Whether the engine was told to end. It refuses calls of clients then."""
        return bool(self.core.shutdown_state.name != "RUNNING")

    def outputs(self) -> Iterator[Any]:
        """The outputs that the client receives of what the engine had for it since the last call.
        vLLM may have read those of several requests from a set, whose order depends on the seed of
        hashes. So they are sorted by their names."""
        for frames in self.core.sockets.written() if self.unsent else ():
            outputs = self._decoder.decode(frames)
            outputs.outputs.sort(key=lambda each: each.request_id)
            yield outputs

    def mark(self, answers: Iterable[object]) -> int:
        """The mark of what can be seen now: the steps that the workers were given since the last
        mark, these answers to clients, and the state of the engine."""
        for request in self.core.scheduler.requests.values():
            self.hashed.learn(request)
        executed, self.executor.executed = self.executor.executed, []
        state = shown.state(self.core.scheduler, self.pools, self.hashed.named)
        return mark((executed, [*answers], *state))

    @property
    def free_blocks(self) -> int:
        """The number of free blocks."""
        return int(self.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def held(self) -> int:
        """The number of blocks that are not free, without the null block."""
        return int(self.core.scheduler.kv_cache_config.num_blocks) - 1 - self.free_blocks

    def close(self) -> None:
        """Close the resources that the engine has opened."""
        for worker in self.observed.workers if self.observed is not None else ():
            worker.connector.shutdown()
        self.core.scheduler.shutdown()
