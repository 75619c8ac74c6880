"""The list of all names of vLLM and torch that are replaced by fakes while an episode runs, and the
block that puts the fakes in place."""

import contextlib
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from kvproof.live.fakes import copies, lmcache, loops, mooncake, nixl, peers, streams, wire
from kvproof.live.fakes.clock import LEASE_S, Clock, FakeModule
from kvproof.live.fakes.copies import watched
from kvproof.live.fakes.store_client import StoreClient
from kvproof.live.fakes.threads import EventThreads, QueueModule, TaskThread, Threads
from kvproof.live.fakes.wire import AtOnce, make_socket, socket_context
from kvproof.model.errors import AdapterDrift

OFFLOAD = "vllm.v1.kv_offload"
SIMPLE = "vllm.v1.simple_kv_offload.copy_backend"
DISK = "vllm.v1.simple_kv_offload.disk_backend"
STORE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker"
HOST_BUFFERS = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker"
HIDDEN = "vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector"
OBJECTS = f"{OFFLOAD}.tiering.obj.manager"
FILES = f"{OFFLOAD}.tiering.fs.manager"
PEERS = f"{OFFLOAD}.tiering.p2p"
JOBS = f"{OFFLOAD}.tiering.manager:TransferJob"
NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
NIXL_UP_TO_0_19 = "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector"
UTILS = "vllm.distributed.kv_transfer.kv_connector.utils"
WRITES = mooncake.HOME
SERVER = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_utils"
BACKEND = "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackend"

OTHER_BACKEND = "vllm.v1.attention.backends.flex_attention:FlexAttentionBackend"
"""Another attention backend that runs on a CPU."""

SETTINGS = {
    "MOONCAKE_CONFIG_PATH": str(Path(__file__).with_name("mooncake.json")),
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": str(LEASE_S),
}
"""The environment variables that a connector reads: the place of its store's settings, and the time
for which P keeps blocks for D, in seconds."""


class Replacement(NamedTuple):
    """One name of vLLM or torch, `module:name` or `module:Class.name`, the fake that takes its
    place, and the reason. A vLLM may lack a name that only `other` releases have, before or after
    it. Any other missing name is drift: vLLM then does elsewhere what was replaced here."""

    place: str
    by: Callable[[Clock], Any]
    why: str
    other: bool = False


def _always(what: Any) -> Callable[[Clock], Any]:
    return lambda _clock: what


def _executors(kind: Callable[[Clock], Any]) -> Callable[[Clock], Any]:
    """Make the fakes of a class of executors: each makes executors of this kind."""
    return lambda clock: lambda *_, **__: kind(clock)


def _in_time(clock: Clock) -> AtOnce | TaskThread:
    """Make an executor that runs a task at the first or the last moment of the clock's window."""
    return TaskThread(clock) if clock.late else AtOnce()


class Platform:
    """A fake of vLLM's platform, as one with a GPU. It says ROCm, for which vLLM uses plain host
    memory."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    Stream, Event = streams.Stream, streams.Event
    stream, current_stream = staticmethod(streams.stream), staticmethod(streams.current_stream)

    def is_cuda_alike(self) -> bool:
        """Whether there is a GPU."""
        return True

    def is_rocm(self) -> bool:
        """Whether the GPU is one of AMD."""
        return True

    def set_device(self, _device: Any) -> None:
        """Use a device; there is only one."""


class BarePlatform(Platform):
    """vLLM's platform for a CPU, without its cores. With `buffered`, it says that it is the one for
    CUDA, for which NIXL may have buffers on the host."""

    def __init__(self, real: Any, buffered: bool = False) -> None:
        super().__init__(real)
        self.device_type = "cuda" if buffered else real.device_type

    insert_blocks_to_device = staticmethod(copies.copy_rows)
    swap_out_blocks_to_host = staticmethod(copies.copy_rows)

    def discover_numa_topology(self) -> list[list[int]]:
        """The CPU cores from which vLLM takes one for transfers: none."""
        return []

    def is_cuda_alike(self) -> bool:
        """Whether there is a GPU."""
        return False

    is_rocm = is_cuda_alike


def _kernel_sizes(clock: Clock) -> Any:
    from vllm.v1.attention.backend import MultipleOf

    return classmethod(lambda *_: [clock.kernel_tokens or MultipleOf(1)])


class StepTime(FakeModule):
    """A fake of the module `time`: a step takes a second."""

    real = time

    ahead = False
    """Whether this clock is ahead of others by `clock.ahead`."""

    def perf_counter(self) -> float:
        """The time in seconds."""
        return float(self.clock.now + self.clock.ahead * self.ahead)

    def sleep(self, _seconds: float) -> None:
        """Wait for the copies and threads in progress."""
        self.clock.tick()


class PeerTime(StepTime):
    """The same fake in modules that call another function of `time`."""

    monotonic = StepTime.perf_counter


class WorkerTime(StepTime):
    """The same fake in a module of a worker, whose process may be on a machine with another
    clock."""

    ahead = True


def _dated(place: str, when: str) -> Callable[[Clock], Any]:
    """A class of vLLM at this place, whose objects have in `when` the time at which they were made,
    by this clock."""

    def of(clock: Clock) -> Any:
        module, _, name = place.partition(":")
        kind = getattr(importlib.import_module(module), name)

        def made(*parts: Any, **named: Any) -> Any:
            one: Any = kind(*parts, **named)
            setattr(one, when, float(clock.now))
            return one

        return made

    return of


def _bare_platform(clock: Clock) -> Platform:
    from vllm.platforms import current_platform

    return BarePlatform(current_platform, clock.buffered)


def _platform(_clock: Clock) -> Platform:
    from vllm.platforms import current_platform

    return Platform(current_platform)


def emptied(_clock: Clock) -> Any:
    """Replace `initialize_host_xfer_buffer` by a function whose buffers are empty. The old content
    of the memory, perhaps the KV of an equal episode, could make a copy look right that was never
    made."""
    begin = importlib.import_module(
        HOST_BUFFERS
    ).NixlBaseConnectorWorker.initialize_host_xfer_buffer

    def initialize(worker: Any, *parts: Any, **named: Any) -> None:
        begin(worker, *parts, **named)
        for buffer in worker.host_xfer_buffers.values():
            buffer.zero_()

    return initialize


def _is_cuda(clock: Clock) -> Any:
    return property(lambda tensor: tensor.untyped_storage().data_ptr() in clock.order.caches)


def _thread_start(clock: Clock) -> Any:
    return lambda thread: clock.begin(thread.run)


def _rank(clock: Clock) -> Any:
    return lambda: clock.rank


def _ranks(clock: Clock) -> Any:
    return lambda: clock.ranks


def _group(clock: Clock) -> Any:
    return lambda: SimpleNamespace(
        world_size=clock.stripes, rank_in_group=clock.rank % clock.stripes
    )


def _read_files(clock: Clock) -> Any:
    """Replace the function that reads files: one of them may be gone when it is read. Releases may
    give it the paths under any name."""
    from vllm.v1.kv_offload.tiering.fs.io import batch_load_block

    def read(*given: Any, **named: Any) -> Any:
        paths = next(filter(_are_paths, (*given, *named.values())), None)
        if clock.files_gone and paths is not None:
            clock.files_gone -= 1
            gone = len(paths) // 2 if clock.file is None else clock.file % len(paths)
            Path(paths[gone]).unlink(missing_ok=True)
            StoreClient.failed["get"] += 1
        return batch_load_block(*given, **named)

    return read


def _are_paths(given: object) -> bool:
    """Whether an argument is a list of paths, of at least one."""
    return (
        isinstance(given, list | tuple)
        and len(given) > 0
        and all(isinstance(each, str | os.PathLike) for each in given)
    )


GROUP = SimpleNamespace(world_size=1, rank_in_group=0)

COPIES = "copies are made at the moment that the kit chooses"
MEMORY = "a copy to or from memory that nobody has allocated is an error"
PINNED = "without a device no memory of the host is pinned"
THREADS = "background threads work at the moment that the kit chooses"
AT_ONCE = "an executor runs a task when it is submitted"
NO_SOCKET = "a question is answered at once, by the thread of vLLM that listens"
NO_SERVER = "an object store in memory takes the place of a server"
NO_NETWORK = "messages and copies between engines go through memory"
SECONDS = "a step takes a second"
BUFFERS = "NIXL has buffers on the host, as for a device that it cannot read"
NO_KERNEL = "no kernel runs: blocks are small"
ONE_RANK = "there is one rank and no process group"
ENDS = "what is thrown away after its episode has nothing to shut down"
GONE = "a file is gone when it is read, as another process has removed it"
RANKS = "the ranks are of one process, without a process group"

OF_NIXL: tuple[Replacement, ...] = (
    Replacement(
        "vllm.model_executor.layers.mamba.mamba_utils:get_conv_state_layout",
        _always(lambda: "DS"),
        "the state of a convolution has the order that NIXL needs",
        other=True,
    ),
    *(
        Replacement(f"{place}.get_supported_kernel_block_sizes", _kernel_sizes, NO_KERNEL)
        for place in (BACKEND, OTHER_BACKEND)
    ),
    *(
        Replacement(f"{module}:{name}", by, why, other)
        for worker, scheduler, other in (
            (f"{NIXL}.base_worker", f"{NIXL}.base_scheduler", False),
            (f"{NIXL}.worker", f"{NIXL}.scheduler", True),
            (NIXL_UP_TO_0_19, NIXL_UP_TO_0_19, True),
        )
        for module, name, by, why in (
            (worker, "NixlWrapper", nixl.agents(nixl.CopyingAgent), COPIES),
            (worker, "ThreadPoolExecutor", _always(AtOnce), AT_ONCE),
            (worker, "zmq_ctx", socket_context, NO_SOCKET),
            (scheduler, "zmq_ctx", socket_context, NO_SOCKET),
            (scheduler, "threading", Threads, THREADS),
            (worker, "current_platform", _bare_platform, "no core is reserved"),
            (scheduler, "current_platform", _bare_platform, BUFFERS),
            (worker, "get_tensor_model_parallel_rank", _rank, RANKS),
            (worker, "get_tensor_model_parallel_world_size", _ranks, RANKS),
        )
    ),
    Replacement(f"{UTILS}:current_platform", _bare_platform, BUFFERS),
    Replacement(
        f"{HOST_BUFFERS}:NixlBaseConnectorWorker.initialize_host_xfer_buffer",
        emptied,
        "new memory holds nothing",
    ),
    Replacement(f"{NIXL}.push_worker:threading", EventThreads, THREADS),
    Replacement(f"{NIXL}.push_worker:queue", QueueModule, THREADS),
    *(
        Replacement(f"{module}:time", by, SECONDS, other)
        for module, by, other in (
            (f"{NIXL}.base_worker", WorkerTime, False),
            (f"{NIXL}.base_scheduler", StepTime, False),
            (f"{NIXL}.pull_worker", WorkerTime, False),
            (f"{NIXL}.pull_scheduler", StepTime, False),
            (f"{NIXL}.push_worker", WorkerTime, False),
            (f"{NIXL}.push_scheduler", StepTime, False),
            (f"{NIXL}.worker", WorkerTime, True),
            (f"{NIXL}.scheduler", StepTime, True),
            (NIXL_UP_TO_0_19, StepTime, True),
        )
    ),
)
"""The replacements that NIXL's connectors need."""

REPLACED: tuple[Replacement, ...] = (
    *OF_NIXL,
    *(
        Replacement(f"{home}:{name}", _always(getattr(streams, name)), COPIES)
        for home in ("torch.cuda", "torch.cpu")
        for name in ("Stream", "Event", "current_stream", "stream")
    ),
    Replacement(
        "torch:Tensor.is_cuda", _is_cuda, "the KV caches, and they alone, are on the device"
    ),
    Replacement("torch.accelerator:current_device_index", _always(lambda: 0), ONE_RANK),
    *(
        Replacement(f"torch:{name}", watched(name), MEMORY)
        for name in ("zeros", "empty", "frombuffer")
    ),
    Replacement("torch:empty_like", _always(copies.empty_like), PINNED),
    Replacement("torch:Event", _always(streams.Event), COPIES),
    Replacement("vllm._custom_ops:swap_blocks", _always(copies.swap_blocks), COPIES),
    Replacement("vllm._custom_ops:swap_blocks_batch", _always(copies.swap_blocks_batch), COPIES),
    Replacement(f"{SIMPLE}:build_params", _always(copies.build_params), COPIES),
    Replacement(f"{SIMPLE}:copy_blocks", _always(copies.copy_blocks), COPIES),
    *(
        Replacement(f"{DISK}:{name}", by, why, other=True)
        for name, by, why in (
            ("build_params", _always(copies.build_params), COPIES),
            ("copy_blocks", _always(copies.copy_blocks), COPIES),
            ("pin_tensor", _always(lambda _tensor: None), PINNED),
            ("current_platform", _platform, "a worker that asks for a GPU runs"),
            ("threading", Threads, THREADS),
            ("queue", QueueModule, THREADS),
        )
    ),
    *(
        Replacement(
            f"{place}:current_platform", _platform, "a worker that asks for a GPU runs", other
        )
        for place, other in (
            (f"{OFFLOAD}.cpu.spec", False),
            (f"{OFFLOAD}.cpu.gpu_worker", True),
            (SIMPLE, False),
        )
    ),
    *(
        Replacement(f"{place}:threading", Threads, THREADS)
        for place in (
            SIMPLE,
            f"{OFFLOAD}.tiering.async_lookup",
            f"{OFFLOAD}.tiering.fs.thread_pool",
        )
    ),
    *(
        Replacement(f"{place}:queue", QueueModule, THREADS)
        for place in (SIMPLE, f"{OFFLOAD}.tiering.async_lookup", STORE)
    ),
    Replacement(f"{FILES}:batch_load_block", _read_files, GONE, other=True),
    Replacement(f"{STORE}:KVTransferThread.start", _thread_start, THREADS),
    Replacement(f"{STORE}:threading", Threads, THREADS),
    Replacement(f"{STORE}:time", PeerTime, "who sleeps waits for a copy", other=True),
    Replacement(f"{STORE}:ThreadPoolExecutor", _always(AtOnce), AT_ONCE, other=True),
    Replacement(f"{HIDDEN}:ThreadPoolExecutor", _executors(TaskThread), THREADS, other=True),
    Replacement(f"{HIDDEN}:get_tensor_model_parallel_rank", _rank, RANKS, other=True),
    Replacement(f"{STORE}:make_zmq_socket", make_socket, NO_SOCKET),
    Replacement(f"{STORE}:get_tensor_model_parallel_rank", _rank, RANKS),
    Replacement(f"{STORE}:get_tensor_model_parallel_world_size", _ranks, RANKS),
    Replacement(f"{STORE}:get_pcp_group", _always(lambda: GROUP), ONE_RANK),
    Replacement(f"{STORE}:get_dcp_group", _group, RANKS),
    Replacement(f"{OBJECTS}:nixl_agent", nixl.agents(nixl.ObjectAgent), NO_SERVER),
    Replacement(f"{OBJECTS}:nixl_agent_config", _always(lambda **_: None), NO_SERVER),
    Replacement(f"{OBJECTS}:time", StepTime, "who sleeps waits for a copy", other=True),
    Replacement(f"{PEERS}.control.zmq:zmq", peers.PeerSockets, NO_NETWORK),
    Replacement(f"{PEERS}.data.nixl:_NixlAgent", nixl.agents(peers.PeerAgent), NO_NETWORK),
    Replacement(f"{PEERS}.data.nixl:_NixlAgentConfig", _always(lambda **_: None), NO_NETWORK),
    Replacement(f"{PEERS}.data.nixl:ThreadPoolExecutor", _always(AtOnce), AT_ONCE, other=True),
    *(
        Replacement(place, _dated(place, when), SECONDS, other=place == JOBS)
        for place, when in (
            (f"{PEERS}.manager:_UnboundStoreBatch", "submitted_at"),
            (JOBS, "submit_time"),
        )
    ),
    Replacement(f"{OFFLOAD}.tiering.backpressure:time", PeerTime, SECONDS, other=True),
    *(
        Replacement(f"{PEERS}.{module}:time", PeerTime, SECONDS, other=module == "session.session")
        for module in ("manager", "session.client", "session.server", "session.session")
    ),
    *(
        Replacement(f"{WRITES}:{name}", by, why, other=name == "current_platform")
        for name, by, why in (
            ("TransferEngine", mooncake.engines, COPIES),
            ("MooncakeConnectorWorker.__init__", mooncake.ends_in_time, ENDS),
            ("asyncio", loops.LoopModule, THREADS),
            ("threading", EventThreads, THREADS),
            ("ThreadPoolExecutor", _executors(_in_time), COPIES),
            ("zmq", wire.AsyncSockets, NO_SOCKET),
            ("make_zmq_socket", _always(wire.make_zmq_socket), NO_SOCKET),
            ("httpx", mooncake.clients, NO_SOCKET),
            ("get_ip", _always(lambda: "localhost"), NO_NETWORK),
            ("time", PeerTime, SECONDS),
            ("current_platform", _bare_platform, "no core is reserved"),
            ("get_tensor_model_parallel_rank", _rank, RANKS),
            ("get_tensor_model_parallel_world_size", _ranks, RANKS),
            ("get_pp_group", _always(lambda: GROUP), ONE_RANK),
        )
    ),
    Replacement(f"{SERVER}:MooncakeBootstrapServer.start", mooncake.start, NO_SOCKET),
    Replacement(f"{SERVER}:MooncakeBootstrapServer.shutdown", mooncake.shutdown, NO_SOCKET),
)


def found(place: str) -> tuple[Any, str] | None:
    """The object that has a name, and the name in it; None if this vLLM does not have the name."""
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    try:
        owner = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
    except (ImportError, AttributeError):
        return None
    return (owner, name) if hasattr(owner, name) else None


def require(
    replacements: Sequence[Replacement], concerns: Callable[[str], bool] = lambda _: True
) -> None:
    """Raise AdapterDrift where this vLLM lacks one of these names although it has the module, if
    the module `concerns` what is driven."""
    for each in replacements:
        module = each.place.partition(":")[0]
        if not each.other and found(each.place) is None and _exists(module) and concerns(module):
            raise AdapterDrift(f"This vLLM has no {each.place} ({each.why})", each.place)


def _exists(module: str) -> bool:
    """Whether this vLLM has a module."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


@contextlib.contextmanager
def device(clock: Clock) -> Iterator[None]:
    """Put the fakes in place, on this clock, until the block ends."""
    streams.Stream.clock = clock
    streams.begin()
    with contextlib.ExitStack() as stack:
        StoreClient.made.clear()
        StoreClient.sent.clear()
        StoreClient.failed.clear()
        stack.callback(loops.close, clock)
        stack.enter_context(in_place(mooncake.MODULES))
        stack.enter_context(in_place(lmcache.MODULES))
        stack.enter_context(patch.dict(os.environ, SETTINGS))
        stack.enter_context(Fakes(REPLACED, clock))
        yield


class Fakes:
    """Fakes of names of vLLM and torch, on a clock. They are in place during a `with` block."""

    def __init__(self, replacements: Sequence[Replacement], clock: Clock) -> None:
        places = [(each, found(each.place)) for each in replacements]
        self._fakes = [(*place, each.by(clock)) for each, place in places if place is not None]
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for owner, name, fake in self._fakes:
            self._before.append((owner, name, vars(owner).get(name, INHERITED)))
            setattr(owner, name, fake)

    def __exit__(self, *_: object) -> None:
        while self._before:
            owner, name, before = self._before.pop()
            if before is INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


INHERITED = object()
"""What a class has instead of a name of its base class."""


@contextlib.contextmanager
def in_place(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Put the fake modules of a package in place until the block ends, unless the package is
    installed, or they are in place already. The package itself is the first of them."""
    package = next(iter(modules))
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        yield
        return
    for name, members in modules.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(members)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
