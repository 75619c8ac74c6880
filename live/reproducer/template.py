"""The template of a reproducer: real schedulers, what happens to them, and what they show.

A reproducer is this file with a test after the imports. It needs vLLM, torch and pytest alone.
"""

import importlib
import inspect
import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

TOKEN, DRAFT, END = ord("."), ord("?"), ord("0")
SHAPE: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
STATES: dict[str, Any] = {"shapes": ((2, 2),), "dtypes": (torch.float32,)}
NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
FOR_DECODE: dict[str, Any] = {"do_remote_decode": True, "do_remote_prefill": False}


def supported(callee: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """The arguments that this vLLM has."""
    names = inspect.signature(callee).parameters
    return {name: value for name, value in arguments.items() if name in names}


class Step(NamedTuple):
    """A step that was scheduled, and the requests that sample a token in it."""

    output: SchedulerOutput
    samples: list[str]


class Engine:
    """A real scheduler with what a worker and a router keep beside it.

    `in_flight` has the steps whose outputs have not arrived, and `output` is what the scheduler
    gave last. `params` are the transfer parameters of finished requests, and `stops` has the
    number of the token with which the model ends the answer of a request. `keep` puts what requests
    have computed into a store. `kernel_blocks` are the kernel blocks in a block, of its own pool
    and of the other engine's.
    """

    def __init__(self, scheduler: Scheduler, hasher: Any, drafts: int, keep: Any) -> None:
        self.scheduler = scheduler
        self.hasher = hasher
        self.drafts = drafts
        self.keep = keep
        self.manager: Any = scheduler.kv_cache_manager
        self.pool: Any = self.manager.block_pool
        self.overlaps = scheduler.vllm_config.scheduler_config.async_scheduling
        self.connector = type(scheduler.connector).__name__
        self.kernel_blocks = 1, 1
        self.in_flight: deque[Step] = deque()
        self.output: Any = None
        self.params: dict[str, Any] = {}
        self.stops: dict[str, int] = {}
        self.arrived = 0
        self.events: list[Any] = []
        self.mispredicted: list[Any] = []
        watch_allocations(self)
        if scheduler.vllm_config.kv_events_config is not None:
            listen(self)


def make_engine(
    folder: Path,
    groups: Sequence[Any],
    num_blocks: int,
    chunk_tokens: int,
    *,
    max_requests: int = 256,
    hash_block_size: int = 0,
    prefix_caching: bool = True,
    overlaps: bool = False,
    drafts: int = 0,
    drafter: str = "ngram",
    drafter_groups: Sequence[int] = (),
    hash_lookahead: bool = False,
    retention: int | None = None,
    kv_events: bool = False,
    embeds: bool = False,
    transfer: dict[str, Any] | None = None,
    keep: Callable[..., None] | None = None,
    kernel_blocks: tuple[int, int] = (1, 1),
    **scheduler_options: Any,
) -> Engine:
    """An engine whose pool has `num_blocks` blocks, one of them the null block. One step computes
    at most `chunk_tokens` tokens. With `overlaps`, a step may begin before the output of the one
    before has arrived."""
    init_none_hash(sha256)
    sizes = [spec.block_size for spec in groups]
    hash_block_size = hash_block_size or min(sizes)
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    shape = {"hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512}
    shape |= {"max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model | shape))
    own = {"kv_connector_module_path": __name__} if keep else {}
    model_config = ModelConfig(
        model=str(folder),
        tokenizer=str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=4096,
        **({"enable_prompt_embeds": True} if embeds else {}),
    )
    speculative = {
        "method": drafter,
        "num_speculative_tokens": drafts,
        "target_model_config": model_config,
        "target_parallel_config": ParallelConfig(),
        **supported(SpeculativeConfig, disable_lookahead_block_hashes=not hash_lookahead),
        **({"model": str(folder)} if drafter == "eagle" else {}),
    }
    config = VllmConfig(
        model_config=model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_requests,
            max_num_batched_tokens=max(chunk_tokens, max_requests),
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
            **scheduler_options,
        ),
        cache_config=CacheConfig(block_size=min(sizes), enable_prefix_caching=prefix_caching),
        kv_transfer_config=KVTransferConfig(**transfer, **own) if transfer else None,
        speculative_config=SpeculativeConfig(**speculative) if drafts else None,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null")
        if kv_events
        else None,
        device_config=DeviceConfig("cpu"),
    )
    # An engine sets these when it knows its model and its memory.
    config.scheduler_config.async_scheduling = overlaps
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    config.scheduler_config.max_num_batched_tokens = chunk_tokens
    config.scheduler_config.max_num_scheduled_tokens = chunk_tokens
    config.cache_config.block_size = min(sizes)
    config.cache_config.num_gpu_blocks = num_blocks
    config.cache_config.enable_prefix_caching = prefix_caching
    for spec in groups:
        if isinstance(spec, specs.MambaSpec):
            config.cache_config.mamba_cache_mode = spec.mamba_cache_mode
            config.cache_config.mamba_block_size = spec.block_size
    retained = {} if retention is None else {"prefix_cache_retention_interval": retention}
    scheduler = config.scheduler_config.get_scheduler_cls()(
        vllm_config=config,
        kv_cache_config=specs.KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                specs.KVCacheGroupSpec(
                    [f"layer{i}"],
                    spec,
                    **({"is_eagle_group": i in drafter_groups} if drafter_groups else {}),
                )
                for i, spec in enumerate(groups)
            ],
            **supported(specs.KVCacheConfig, **retained),
        ),
        structured_output_manager=StructuredOutputManager(config),
        log_stats=False,
        **supported(Scheduler, block_size=max(sizes), hash_block_size=hash_block_size),
    )
    ahead = {"num_hash_lookahead_tokens": 1} if hash_lookahead else {}
    hasher = get_request_block_hasher(
        hash_block_size, sha256, **supported(get_request_block_hasher, **ahead)
    )
    engine = Engine(scheduler, hasher, drafts, keep)
    engine.kernel_blocks = kernel_blocks
    return engine


def add(
    engine: Engine,
    name: str,
    prompt: str,
    max_tokens: int,
    *,
    embeds: bool = False,
    params: dict[str, Any] | None = None,
    adapter: tuple[int, str] | None = None,
    extra: dict[str, Any] | None = None,
    stops: int = 0,
    **options: Any,
) -> None:
    """A request arrives. Each character of its prompt is one token. All LoRA adapters have one
    name, whatever they were loaded from. `extra` are arguments of vLLM beside its sampling."""
    ids = [ord(token) for token in prompt]
    if embeds:
        options["prompt_embeds"] = torch.tensor([[float(i)] * 4 for i in ids])
    if adapter:
        options["lora_request"] = LoRARequest("one-name", *adapter)
    engine.stops[name] = stops
    extra = {**(extra or {}), **({"kv_transfer_params": dict(params)} if params else {})}
    request = Request(
        request_id=name,
        prompt_token_ids=None if embeds else ids,
        sampling_params=SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            stop_token_ids=[END] if stops else None,
            extra_args=extra or None,
        ),
        pooling_params=None,
        arrival_time=engine.arrived,
        block_hasher=engine.hasher,
        **options,
    )
    engine.arrived += 1
    engine.scheduler.add_request(request)


def schedule(engine: Engine) -> None:
    """Schedule a step. Its output arrives later, or at once where it has no tokens. A request
    samples where its last known token is computed."""
    engine.output = output = engine.scheduler.schedule()
    requests = [engine.scheduler.requests[name] for name in output.num_scheduled_tokens]
    if engine.keep and engine.overlaps:
        engine.keep(engine, requests)
    ends = [r.request_id for r in requests if r.num_computed_tokens >= r.num_tokens]
    if requests:
        engine.in_flight.append(Step(output, ends))
    else:
        update(engine, Step(output, []))


def complete(
    engine: Engine,
    accepted: dict[str, int] | None = None,
    invalid_block_ids: Sequence[int] = (),
) -> None:
    """The output of the oldest step in flight arrives. `accepted` are the drafts that each request
    accepts; a load into the `invalid_block_ids` has failed."""
    if engine.in_flight:
        update(engine, engine.in_flight.popleft(), accepted, invalid_block_ids)


def update(
    engine: Engine,
    step: Step,
    accepted: dict[str, int] | None = None,
    invalid_block_ids: Sequence[int] = (),
) -> None:
    """The output of a step arrives."""
    names = list(step.output.num_scheduled_tokens)
    if engine.keep and not engine.overlaps:
        engine.keep(engine, [engine.scheduler.requests[name] for name in names])
    sampled = [[TOKEN] if name in step.samples else [] for name in names]
    for name, count in (accepted or {}).items():
        if name in step.samples:
            drafts = step.output.scheduled_spec_decode_tokens.get(name, [])
            sampled[names.index(name)] += [TOKEN] * min(count, len(drafts))
    for name, tokens in zip(names, sampled, strict=True):
        if engine.stops.get(name) and name in engine.scheduler.requests:
            left = engine.stops[name] - len(engine.scheduler.requests[name].output_token_ids)
            tokens[:] = [END if n == left else each for n, each in enumerate(tokens, 1)]
    failed = KVConnectorOutput(invalid_block_ids={*invalid_block_ids})
    outputs = engine.scheduler.update_from_output(
        step.output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=failed if invalid_block_ids else None,
        ),
    )
    if engine.drafts and names and not engine.overlaps:
        proposed = [[DRAFT] * engine.drafts for _ in names]
        engine.scheduler.update_draft_token_ids(DraftTokenIds(names, proposed))
    for of_client in outputs.values():
        for each in of_client.outputs:
            if each.kv_transfer_params:
                engine.params[each.request_id] = each.kv_transfer_params


def run(engine: Engine, steps: int) -> None:
    """Run an engine for some steps."""
    for _ in range(steps):
        schedule(engine)
        complete(engine)


def abort(engine: Engine, name: str) -> None:
    """The user aborts a request."""
    engine.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)


def report(engine: Engine, **transfers: set[str]) -> None:
    """A worker reports ended transfers."""
    engine.scheduler.update_from_output(
        SchedulerOutput.make_empty(),
        ModelRunnerOutput(
            req_ids=[],
            req_id_to_index={},
            kv_connector_output=KVConnectorOutput(**transfers),
        ),
    )


def end_transfer(source: Engine, sent: str, sink: Engine, taken: str) -> None:
    """All blocks are copied, or none is needed: the workers report it."""
    reader = sink.scheduler.requests.get(taken)
    if reader and reader.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
        report(sink, finished_recving={taken})
    if sent in source.scheduler.requests:
        report(source, finished_sending={sent})


def serve(prefill: Engine, decode: Engine, steps: int) -> None:
    """Run both engines for some steps. Reads that begin end in the next step."""
    for _ in range(steps):
        for source, sink in ((decode, prefill), (prefill, decode)):
            schedule(sink)
            reads = list(sink.output.kv_connector_metadata.reqs_to_recv)
            complete(sink)
            for name in reads:
                end_transfer(source, name, sink, name)


class StoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """A store that has the prefixes in `stored` and loads them within the step."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.stored: list[list[int]] = []

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        ids = list(request.all_token_ids)
        found = [len(p) for p in self.stored if p == ids[: len(p)] and p != ids]
        return max([num_computed_tokens, *found]) - num_computed_tokens, False

    def update_state_after_alloc(self, *_: Any, **__: Any) -> None: ...

    def build_connector_meta(self, *_: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, *_: Any) -> tuple[bool, None]:
        return False, None

    request_finished_all_groups = request_finished

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...

    def wait_for_save(self) -> None: ...


def keeping(unit: int, *, states: bool) -> Callable[..., None]:
    """How a store keeps what the requests of a step have computed, without drafts, in pieces of
    `unit` tokens. Of `states` it has the last one alone."""

    def keep(engine: Engine, requests: list[Request]) -> None:
        for request in requests:
            computed = request.num_computed_tokens
            pending = [TOKEN] * (computed - request.num_tokens) if engine.overlaps else []
            ids = [*request.all_token_ids, *pending][:computed]
            ends = list(range(unit, len(ids) + 1, unit))
            if states:
                ends = [computed] if computed in ends else []
            engine.scheduler.connector.stored += [ids[:end] for end in ends]

    return keep


def fail_load(engine: Engine, name: str, length: int, first: int, count: int) -> list[int]:
    """The load of a request fails: the store loses what it has of its first tokens. Returns the
    blocks of the load: `count` of them, from the `first` of its table on."""
    blocks = list(engine.manager.get_block_ids(name)[0])[first : first + count]
    lost = list(engine.scheduler.requests[name].all_token_ids)[:length]
    store = engine.scheduler.connector
    store.stored = [p for p in store.stored if p[:length] != lost]
    return blocks


def shown(engine: Engine) -> dict[str, Any]:
    """What an engine shows, by name. Of a request and of a block, what is known of each."""
    found = {f"request {name}": of_request(engine, name) for name in engine.scheduler.requests}
    blocks = engine.pool.blocks
    free, entries, waiting = free_blocks(engine), table_entries(engine), deferred(engine)
    held = Counter([*(block for _, block in entries), *waiting])
    for number in range(1, len(blocks)):
        found[f"block {number}"] = {
            "free": number in free,
            "holders": sorted({name for name, block in entries if block == number}),
            "cached": blocks[number].block_hash is not None,
            "references": blocks[number].ref_cnt,
        }
    return found | {
        "requests": sorted(engine.scheduler.requests),
        "free and held": sorted({block for _, block in entries} & {*free}),
        "wrong references": [n for n in range(1, len(blocks)) if blocks[n].ref_cnt != held[n]],
        "neither free nor held": sorted({*range(1, len(blocks))} - {*held} - {*free}),
        "free queue": free,
        "freed later": waiting,
        "free blocks": engine.pool.get_num_free_blocks(),
        "cached prefixes": len(engine.pool.cached_block_hash_to_block),
        "parameters": engine.params,
        "scheduled": dict(engine.output.num_scheduled_tokens) if engine.output else {},
        "preempted": sorted(getattr(engine.output, "preempted_req_ids", None) or ()),
        "zeroed": list(getattr(engine.output, "new_block_ids_to_zero", None) or ()),
        "copied": list(getattr(engine.output, "kv_cache_block_copies", None) or ()),
        "read": attempt(lambda: reads(engine)) if "Nixl" in engine.connector else {},
        "events": attempt(lambda: described(engine)),
        "wrong predictions": engine.mispredicted,
    }


def of_request(engine: Engine, name: str) -> dict[str, Any]:
    """What is known of a request. A block table has the null block as 0."""
    request = engine.scheduler.requests[name]
    queues = 0
    for queue in vars(engine.scheduler).values():
        if isinstance(queue, list) or type(queue).__name__.endswith("Queue"):
            queues += sum(getattr(each, "request_id", "") == name for each in queue)
    found = {
        "queues": queues,
        "hit": getattr(request, "num_cached_tokens", 0),
        "computed": request.num_computed_tokens,
        "status": request.status.name,
        "outputs": request.num_output_tokens,
        "placeholders": getattr(request, "num_output_placeholders", 0),
    }
    managers = engine.manager.coordinator.single_type_managers
    for group, ids in enumerate(engine.manager.get_block_ids(name)):
        found[f"group {group}"] = {
            "blocks": len(ids),
            "real blocks": [place for place, block in enumerate(ids) if block],
            "counted as cached": managers[group].num_cached_block.get(name, 0),
            "table": list(ids),
        }
    return found


def attempt(look: Callable[[], Any]) -> Any:
    """What is seen, or the exception that a function of vLLM raises there."""
    try:
        return look()
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"raises {type(error).__name__}: {error}"


def free_blocks(engine: Engine) -> list[int]:
    """The blocks in the free queue, in order. A damaged queue may be a circle."""
    free: list[int] = []
    block = engine.pool.free_block_queue.fake_free_list_head.next_free_block
    while block and block.next_free_block and block.block_id not in free:
        free.append(block.block_id)
        block = block.next_free_block
    return free


def table_entries(engine: Engine) -> list[tuple[str, int]]:
    """Each block in a block table, with its request, as often as it is there."""
    return [
        (name, block.block_id)
        for manager in engine.manager.coordinator.single_type_managers
        for name, blocks in manager.req_to_blocks.items()
        for block in blocks
        if not block.is_null
    ]


def deferred(engine: Engine) -> list[int]:
    """The blocks that are freed when the steps in flight have ended."""
    waiting = getattr(engine.scheduler, "deferred_frees", ())
    return [b.block_id for _, blocks in waiting for b in blocks if not b.is_null]


def watch_allocations(engine: Engine) -> None:
    """Note each request that takes another number of blocks than was predicted."""
    manager, predictions = engine.manager, [0]
    predict, allocate = manager.coordinator.get_num_blocks_to_allocate, manager.allocate_slots

    def predicting(*args: Any, **kwargs: Any) -> int:
        result: int = predict(*args, **kwargs)
        if not kwargs.get("apply_admission_cap"):
            predictions.append(result)
        return result

    def allocating(request: Any, *args: Any, **kwargs: Any) -> Any:
        free = engine.pool.get_num_free_blocks()
        result = allocate(request, *args, **kwargs)
        taken = free - engine.pool.get_num_free_blocks()
        if result is not None and taken != predictions[-1]:
            engine.mispredicted.append([request.request_id, predictions[-1], taken])
        return result

    manager.coordinator.get_num_blocks_to_allocate = predicting
    manager.allocate_slots = allocating


def listen(engine: Engine) -> None:
    """Keep the KV events that the engine publishes from now on."""
    publish = engine.scheduler.kv_event_publisher.publish

    def publishing(batch: Any) -> None:
        engine.events.extend(batch.events)
        publish(batch)

    engine.scheduler.kv_event_publisher.publish = publishing


def described(engine: Engine) -> dict[str, Any]:
    """The KV events so far, without their hashes: kind, group, hashes and tokens of each; and how
    many prefixes a listener knows that are not cached."""
    engine.events.extend(engine.manager.take_events())
    known: set[Any] = set()
    listed = []
    for event in engine.events:
        kind, group = type(event).__name__, getattr(event, "group_idx", None)
        hashes = [(group, each) for each in getattr(event, "block_hashes", ())]
        listed.append([kind, group, len(hashes), list(getattr(event, "token_ids", ()))])
        kinds = {"BlockStored": known | {*hashes}, "BlockRemoved": known - {*hashes}}
        known = kinds.get(kind, set())
    lost = len(known) - len(engine.pool.cached_block_hash_to_block)
    return {"all": listed, "known but not cached": lost if engine.events else 0}


def reads(engine: Engine) -> dict[str, Any]:
    """The kernel blocks that a NIXL worker reads in the last step, by request and cache group: its
    own and the sender's. The worker is real, and trims block lists and nothing else."""
    try:
        module = importlib.import_module(NIXL + ".base_worker")
        worker: Any = object.__new__(module.NixlBaseConnectorWorker)
    except ModuleNotFoundError:
        module = importlib.import_module(NIXL + ".worker")
        worker = object.__new__(module.NixlConnectorWorker)
    own, other = engine.kernel_blocks
    config = engine.scheduler.kv_cache_config
    kinds = [type(group.kv_cache_spec) for group in config.kv_cache_groups]
    worker.kv_cache_config = config
    worker._has_mamba = specs.MambaSpec in kinds
    worker._physical_blocks_per_logical_kv_block = own
    worker._group_spec_types = tuple(kinds)
    worker._is_mamba_group = [kind is specs.MambaSpec for kind in kinds]
    expand, trim = worker._logical_to_kernel_block_ids, worker._apply_prefix_caching
    found = {}
    metadata = engine.output and engine.output.kv_connector_metadata
    for name, meta in metadata.reqs_to_recv.items() if metadata else ():
        if not getattr(meta, "awaiting_kvs", meta.local_block_ids):
            continue
        ours, theirs = map(list, (meta.local_block_ids, meta.remote.block_ids))
        if len(inspect.signature(expand).parameters) == 2:
            ours, theirs = expand(ours, own), expand(theirs, other)
        else:
            theirs = worker._logical_to_remote_kernel_block_ids(theirs, other)
            ours = expand(ours)
        ratios = [own, other][-(len(inspect.signature(trim).parameters) - 2) :]
        trimmed = zip(*trim(ours, theirs, *ratios), strict=True)
        found[name] = [[list(map(int, ids)) for ids in pair] for pair in trimmed]
    return found
