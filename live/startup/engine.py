"""The real start-up of vLLM, and the real scheduler that results from it. A plan is carried out in
two starts: first one with plenty of memory, which shows the size of a block and the blocks of a
request, and then the start that the plan describes."""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.live import build, importing  # noqa: F401 (vLLM is imported quietly)

# isort: split

import torch
from msgspec.structs import replace
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from kvproof.live import adapt, blame, contract_check, step_output
from kvproof.live.death import death_of, place
from kvproof.live.endless import watched
from kvproof.live.marks import mark
from kvproof.live.observer import shown
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.startup import (
    LoneRequest,
    Pages,
    StartedGroup,
    StartedWorker,
    Startup,
    TakenBlock,
)
from kvproof.model.plans.startup import WINDOWS, Layer, StartupPlan
from kvproof.model.state import NULL, Flight

DTYPES = {1: torch.int8, 2: torch.float16, 4: torch.float32}
ANSWERLESS = (
    *("set_kv_cache_layout", "compile_or_warm_up_model", "register_failure_callback"),
    *("init_kv_output_aggregator", "get_kv_connector_handshake_metadata", "shutdown"),
    *("reset_mm_cache", "reset_encoder_cache"),
)
"""The methods of workers whose answer no caller uses."""

LAYOUTS = ("LBNHC", "LBHNC", "BLNHC", "BLHNC")
STEPS_MAX = 400
REQUESTS_MAX = 4
"""The largest number of requests that a step serves."""

REFUSALS = (ValueError, NotImplementedError)
"""The exceptions with which vLLM says that it cannot serve a model, or not with this little
memory."""

IDLE_MAX = 8
"""The number of steps that schedule nothing, with nothing in flight, after which a request counts
as waiting for ever."""


class Executor:
    """Fakes of the workers of an engine, behind the interface that `EngineCore` has for them. They
    have layers and memory, and keep the configs that they receive. Any other question has no
    answer, and is recorded."""

    def __init__(
        self, plan: StartupPlan, specs: Sequence[Mapping[str, Any]], memory: Sequence[int]
    ) -> None:
        self.specs, self.memory = specs, memory
        self.configs: Sequence[Any] = ()
        self.known_tokens: int | None = None
        self.unanswered: list[str] = []
        first = LAYOUTS.index(plan.layout)
        self.layouts = [*LAYOUTS[first:], *LAYOUTS[:first]]

    def get_kv_cache_specs(self, *_: Any) -> list[dict[str, Any]]:
        """The spec of each layer, for each worker."""
        return [dict(each) for each in self.specs]

    def determine_available_memory(self, *_: Any) -> list[int]:
        """The memory for KV caches, in bytes, for each worker."""
        return list(self.memory)

    def get_supported_kv_cache_layouts(self, *_: Any) -> list[list[str]]:
        """The layouts that the backends support, for each worker."""
        return [self.layouts for _ in self.specs]

    def initialize_from_config(self, configs: Sequence[Any], *_: Any) -> None:
        """Allocate the caches of the workers."""
        self.configs = configs

    def collective_rpc(
        self, method: str, timeout: Any = None, args: tuple[Any, ...] = (), *_: Any, **__: Any
    ) -> Any:
        """Send a message to all workers."""
        del timeout
        if method == "update_max_model_len":
            self.known_tokens = args[0]

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


def spec_of(plan: StartupPlan, layer: Layer) -> Any:
    """The spec of a layer."""
    import vllm.v1.kv_cache_interface as kinds

    if layer.kind == "mamba":
        attention = [each for each in plan.layers if each.kind != "mamba"]
        largest = max((spec_of(plan, each).page_size_bytes for each in attention), default=0)
        return kinds.MambaSpec(
            block_size=layer.block,
            shapes=((layer.heads, layer.width),),
            dtypes=(DTYPES[layer.bytes],),
            mamba_cache_mode=_states(plan),
            page_size_padded=max(largest, layer.content_bytes) if layer.padded else None,
            num_speculative_blocks=plan.drafts,
        )
    common: dict[str, Any] = {
        "block_size": layer.block,
        "num_kv_heads": layer.heads,
        "head_size": layer.width,
        "dtype": DTYPES[layer.bytes],
    }
    if layer.kind in ("mla", "hidden"):  # a token has no V
        kind = build.hidden_states() if layer.kind == "hidden" else kinds.MLAAttentionSpec
        return kind(**common, **_no_v(kind, common))
    if layer.kind == "window mla":
        narrow = getattr(kinds, "SlidingWindowMLASpec", kinds.SlidingWindowSpec)
        return narrow(**common, sliding_window=layer.window)
    if layer.kind == "window":
        return kinds.SlidingWindowSpec(**common, sliding_window=layer.window)
    if layer.kind == "chunked":
        return kinds.ChunkedLocalAttentionSpec(**common, attention_chunk_size=layer.window)
    if layer.kind == "sink":
        return kinds.SinkFullAttentionSpec(**common, sink_len=layer.block)
    return kinds.FullAttentionSpec(**common)


def _states(plan: StartupPlan) -> str:
    """The states that a Mamba layer keeps, under vLLM's name for them."""
    if not plan.prefix_caching:
        return "none"
    return "all" if plan.every_state and adapt.keeps_every_state() else "align"


def _no_v(kind: Any, common: dict[str, Any]) -> dict[str, Any]:
    """The width of V for MLA, which differs between releases."""
    size = kind(**common).page_size_bytes
    one = common["block_size"] * common["head_size"] * common["dtype"].itemsize
    return adapt.accepted(kind, head_size_v=0) if size > one else {}


class Core(EngineCore):  # type: ignore[misc]
    """The engine core whose start-up is carried out; its constructor does not run."""

    def __init__(self) -> None: ...


class StartedEngine:
    """An engine after its start-up. Raises the exceptions of the start-up."""

    def __init__(self, plan: StartupPlan, memory: Sequence[int], override: int | None) -> None:
        contract_check.check().require(["start-up"])
        self.plan = plan
        layers = plan.workers()
        specs = [{name: spec_of(plan, one) for name, one in each.items()} for each in layers]
        self.executor = Executor(plan, specs, memory)
        further = {"speculative_config": build.drafter(plan.drafts)} if plan.drafts else {}
        self.vllm_config = config_of(plan, override, **further)
        core = Core()
        core.model_executor = self.executor
        core.vllm_config = self.vllm_config
        core.available_gpu_memory_for_kv_cache = -1
        try:
            self.config: Any = core._initialize_kv_caches(self.vllm_config)
        except REFUSALS:
            raise
        except Exception as error:
            self.executor.spare(error)
            raise
        if isinstance(self.config, tuple):  # before it was the config alone
            blocks, _, self.config = self.config
            self.vllm_config.cache_config.num_gpu_blocks = blocks

    @property
    def max_model_len(self) -> int:
        """The largest number of tokens of a request."""
        return int(self.vllm_config.model_config.max_model_len)

    @property
    def concurrency(self) -> float:
        """The number of requests of the largest length that vLLM reports to fit."""
        home, name = "vllm.v1.core", "get_max_concurrency_for_kv_cache_config"
        counted = adapt.first([f"{home}.kv_cache_utils:{name}", f"{home}.kv_cache_planning:{name}"])
        return float(counted(self.vllm_config, self.config))

    def workers(self) -> tuple[StartedWorker, ...]:
        """The workers, with the caches that they must allocate."""
        return tuple(
            self._worker(*each)
            for each in zip(
                self.plan.workers(), self.executor.memory, self.executor.configs, strict=True
            )
        )

    def groups(self) -> tuple[StartedGroup, ...]:
        """The cache groups of the scheduler."""
        return tuple(map(self._group, self.config.kv_cache_groups))

    def in_flight_steps(self) -> int:
        """The number of steps that are scheduled before the output of the first arrives."""
        found = getattr(self.vllm_config, "max_concurrent_batches", None)
        return found or (self.plan.stages if self.plan.stages > 1 else 1 + self.plan.overlaps)

    def run(self, call_begins: Callable[[], None]) -> LoneRequest:
        """Run one request of the largest length, alone, to its end."""
        scheduler = self._scheduler()
        tokens = self.max_model_len
        answer = min(self.plan.answer_tokens, tokens - 1)
        hasher = None
        if self.plan.prefix_caching:
            hasher = get_request_block_hasher(self.hash_block, sha256)
        request = Request(
            request_id="r0",
            prompt_token_ids=list(range(1, tokens - answer + 1)),
            sampling_params=SamplingParams(max_tokens=answer, ignore_eos=True),
            pooling_params=None,
            block_hasher=hasher,
        )
        scheduler.add_request(request)
        pool = scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        held, idle, steps = 0, 0, self.in_flight_steps()
        clean: set[int] = {NULL}
        new: set[TakenBlock] = set()
        flying: deque[tuple[Any, tuple[Flight, ...]]] = deque()
        pools, marks = shown.pools(scheduler), []
        for _ in range(STEPS_MAX):
            call_begins()
            output = scheduler.schedule()
            held = max(held, free - pool.get_num_free_blocks())
            erased = adapt.zeroed(output)
            for group, table in enumerate(scheduler.kv_cache_manager.get_block_ids("r0")):
                if erased is not None:
                    new |= {TakenBlock(group, b, b in erased) for b in {*table} - clean}
                clean |= {*table}
            answers = [shown.plain(output)]
            count = output.num_scheduled_tokens.get("r0", 0)
            samples = bool(count) and request.num_computed_tokens >= request.num_tokens
            shares = (Flight("r0", count, samples=samples),) if count else ()
            flying.append((output, shares))
            if len(flying) >= steps or not count:
                taken, parts = flying.popleft()
                ended = scheduler.update_from_output(taken, step_output.sampled(parts, {}))
                answers.append(shown.plain(ended))
                if self.plan.drafts and not self.plan.overlaps:
                    names = [part.request for part in parts if part.samples]
                    scheduler.update_draft_token_ids(step_output.drafted(names, self.plan.drafts))
            marks.append(mark((*answers, *shown.state(scheduler, pools, shown.unnamed))))
            idle = 0 if count or flying else idle + 1
            if request.is_finished() or idle > IDLE_MAX:
                break
        return LoneRequest(
            *(tokens, request.is_finished(), held, request.num_computed_tokens),
            tuple(sorted(new)),
            tuple(marks),
        )

    def _scheduler(self) -> Any:
        kind: Any = self.vllm_config.scheduler_config.get_scheduler_cls()
        import vllm.v1.core.kv_cache_utils as utils

        self.hash_block = block = self.vllm_config.cache_config.block_size
        if hasattr(utils, "resolve_kv_cache_block_sizes"):
            block, self.hash_block = utils.resolve_kv_cache_block_sizes(
                self.config, self.vllm_config
            )
        return kind(
            vllm_config=self.vllm_config,
            kv_cache_config=self.config,
            structured_output_manager=StructuredOutputManager(self.vllm_config),
            log_stats=True,
            **adapt.scheduler_block_sizes(kind, block, self.hash_block),
        )

    def _worker(self, layers: dict[str, Layer], memory: int, config: Any) -> StartedWorker:
        """A worker, with the caches that it must allocate."""
        groups = tuple(map(self._group, config.kv_cache_groups))
        specs = {
            name: getattr(each.kv_cache_spec, "kv_cache_specs", {}).get(name, each.kv_cache_spec)
            for each in config.kv_cache_groups
            for name in each.layer_names
        }
        pages: list[Pages] = []
        buffers: list[int] = []
        for index, tensor in enumerate(config.kv_cache_tensors):
            one = hasattr(tensor, "layers") or bool(getattr(tensor, "block_stride", 0))
            buffer = 0 if one else index  # parts of one buffer, or a buffer each
            if buffer == len(buffers):
                buffers.append(tensor.size)
            names = tensor.layers if hasattr(tensor, "layers") else tensor.shared_by
            for nth, name in enumerate(names):
                start = getattr(tensor, "offset", 0) + nth * getattr(tensor, "layer_stride", 0)
                stride = getattr(tensor, "block_stride", 0) or tensor.size // config.num_blocks
                size = specs[name].page_size_bytes if name in specs else 0
                pages.append(Pages(name, buffer, start, stride, size))
        return StartedWorker(
            layers, memory, config.num_blocks, groups, tuple(buffers), tuple(pages)
        )

    def _group(self, group: Any) -> StartedGroup:
        import vllm.v1.kv_cache_interface as kinds

        spec = group.kv_cache_spec
        parts = [*getattr(spec, "kv_cache_specs", {}).values()] or [spec]
        first = parts[0]
        named = {
            "mamba": kinds.MambaSpec,
            "window mla": getattr(kinds, "SlidingWindowMLASpec", ()),
            "window": kinds.SlidingWindowSpec,
            "chunked": kinds.ChunkedLocalAttentionSpec,
            "hidden": getattr(kinds, "HiddenStateCacheSpec", ()),
            "mla": kinds.MLAAttentionSpec,
            "sink": kinds.SinkFullAttentionSpec,
            "full": kinds.FullAttentionSpec,
        }
        kind = next((each for each, cls in named.items() if isinstance(first, cls)), "other")
        window = 0
        if kind in (*WINDOWS, "chunked"):
            window = first.attention_chunk_size if kind == "chunked" else first.sliding_window
        reported = getattr(kinds, "get_kv_cache_spec_kind", lambda _: None)(spec)
        return StartedGroup(
            *(kind, first.block_size, window, tuple(group.layer_names)),
            getattr(reported, "value", ""),
            self._entries(spec),
            tuple({self._entries(each) for each in parts}),
        )

    def _entries(self, spec: Any) -> int | None:
        """The entries of a request's block table, as the worker makes it for a spec. None in a
        release whose specs do not say it."""
        counted = getattr(spec, "max_num_blocks_per_req", None)
        return None if counted is None else counted(self.vllm_config, self.max_model_len)


def config_of(plan: StartupPlan, override: int | None, **further: Any) -> Any:
    """The config of an engine before its start-up. `further` has the configs of optional parts."""
    model = copy.copy(build.model_config())
    mamba = next((each for each in plan.layers if each.kind == "mamba"), None)
    made = build.config_of(
        model,
        block_size=min((each.block for each in plan.layers if each.kind != "mamba"), default=8),
        chunk_tokens=plan.chunk_tokens,
        requests=REQUESTS_MAX,
        prefix_caching=plan.prefix_caching,
        overlaps=plan.overlaps and plan.stages == 1,
        states=(_states(plan), mamba.block) if mamba else None,
        scheduling={"disable_hybrid_kv_cache_manager": not plan.hybrid},
        **further,
    )
    model.max_model_len = made.scheduler_config.max_model_len = plan.max_model_len
    model.original_max_model_len = -1 if plan.auto else plan.max_model_len
    made.parallel_config.pipeline_parallel_size = plan.stages
    made.parallel_config.decode_context_parallel_size = plan.shards
    made.scheduler_config.disable_hybrid_kv_cache_manager = not plan.hybrid
    made.cache_config.num_gpu_blocks_override = override
    return made


PLENTY_BLOCKS = 200
"""The number of blocks for which the first start has memory, as if all layers were as large as the
largest."""

CONFIG_CHECK = "validate_block_size"
"""The check of the config, which refuses by an assertion too."""


def starts(plan: StartupPlan) -> list[Startup]:
    """The starts of a plan, in order: two, or only the first if its request does not end. Raises
    AdapterDrift."""
    if not plan.layers:
        return []
    count = len(plan.workers())
    largest = max(e.content_bytes * (1 if e.kind == "mamba" else e.block) for e in plan.layers)
    plenty = [PLENTY_BLOCKS * largest * len(plan.layers)] * count
    first = _start(replace(plan, auto=False), None, plenty)
    if first.run is None or not first.run.ended:
        return [first]
    from_ = first.run.held_max + 1 if plan.counted_from == "need" else first.enough_blocks
    blocks = max(from_ + plan.blocks, 1)
    memory = [
        each.block_bytes * (blocks + plan.more * (at == plan.richer % count))
        + min(plan.odd_bytes, each.block_bytes - 1)
        for at, each in enumerate(first.workers)
    ]
    second = _start(plan, blocks, plenty if plan.override else memory)
    second = second._replace(groups=first.groups, in_flight_tokens=first.in_flight_tokens)
    if second.run is not None and not second.run.ended:
        tokens = second.run.tokens
        again = _start(
            replace(plan, auto=False, override=False, max_model_len=tokens), None, plenty
        )
        held = again.run.held_max if again.run else 0
        second = second._replace(lacks=max(held + 1 - second.num_blocks, 0))
    return [first, second]


def _start(plan: StartupPlan, blocks: int | None, memory: Sequence[int]) -> Startup:
    """Start an engine, and run one request on it."""
    start = Startup(plan, blocks)
    try:
        with watched() as call_begins:
            engine = StartedEngine(plan, memory, blocks if plan.override else None)
            start = start._replace(
                num_blocks=engine.config.num_blocks,
                max_model_len=engine.max_model_len,
                known_tokens=engine.executor.known_tokens,
                concurrency=engine.concurrency,
                workers=engine.workers(),
                groups=engine.groups(),
                in_flight_tokens=engine.in_flight_steps() * plan.chunk_tokens,
                marks=(mark(map(shown.plain, (engine.config, *engine.executor.configs))),),
            )
            return start._replace(run=engine.run(call_begins))
    except Exception as error:
        interruption.check()
        blame.spare(error)
        if isinstance(error, REFUSALS) or place(error).name == CONFIG_CHECK:
            return start._replace(refused=str(error).split(". ")[0])
        return start._replace(died=death_of(error))
