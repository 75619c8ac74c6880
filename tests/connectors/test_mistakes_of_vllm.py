"""Mistakes planted in vLLM's own code: the kit names each, those of which no connector has a part
with a connector that stores nothing."""

import copy
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.live.connectors.drawn import BUFFERED, HIDDEN, SPREAD
from kvproof.live.connectors.encoder import EncoderCache
from kvproof.live.connectors.episode import EpisodeResult
from kvproof.model.config import Group
from kvproof.model.plans.connector import (
    LOAD_TIERS,
    SOURCE,
    STORE_ANSWERS,
    AbortRequest,
    Action,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Image,
    PauseEngine,
    ResetCache,
    Restart,
    ResumeEngine,
    Rows,
    RunSteps,
    Stand,
    SubmitRequest,
)
from tests.connectors.played import (
    AGAIN,
    LATE,
    LOADED,
    PROMPTS,
    PROMPTS_WITH_STATES,
    between_ranks,
    engine_of,
    played,
    rules,
    saving_states,
    turns,
)
from tests.in_vllm import MANAGER, SCHEDULER, Mistake, around, both, instead, line, nothing
from tests.in_vllm import NIXL as NIXL_PLACE

CORE = "vllm.v1.core"
V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
ENCODER = f"{CORE}.encoder_cache_manager:EncoderCacheManager"
UTILS = f"{CORE}.kv_cache_utils"
OFFLOADED = f"{V1}.offloading.scheduler:OffloadingConnectorScheduler"
OFFLOADABLE = f"{OFFLOADED}._calc_num_offloadable_tokens"
STORABLE = f"{V1}.offloading.scheduler:RequestOffloadState.storable_chunks"
LMCACHE = f"{V1}.lmcache_mp_connector"
P2P = "vllm.v1.kv_offload.tiering.p2p"
WORKER = f"{NIXL_PLACE}.base_worker:NixlBaseConnectorWorker"
PULL = f"{NIXL_PLACE}.pull_worker:NixlPullConnectorWorker"
PUSH = f"{NIXL_PLACE}.push_worker:NixlPushConnectorWorker"
MOONCAKE = f"{V1}.mooncake.mooncake_connector"
TIERS = "vllm.v1.kv_offload.tiering"
MAPPER = "vllm.v1.kv_offload.file_mapper:FileMapper"
STATES_KIND = f"{V1}.example_hidden_states_connector:ExampleHiddenStatesConnector"
OFFLOADING = "offloading_connector:OffloadingConnector"
SIMPLE = "simple_cpu_offload_connector:SimpleCPUOffloadConnector"
SIMPLE_SCHEDULER = "vllm.v1.simple_kv_offload.manager:SimpleCPUOffloadScheduler"
MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin:KVConnectorModelRunnerMixin"
STORE_WORKER = f"{V1}.mooncake.store.worker:MooncakeStoreWorker"
FORGETTING = "_evict_stale_engines", "_cleanup_remote_engines"
SURVIVES, SAVED = "engine_survives", "saved_states_are_of_the_prompt"

COUNTED_TWICE = "statistics_count_once"
"""Released vLLM breaks it with `mooncake`, which counts each attempt."""


def _free_before_the_step(allocate: Any, self: Any, request: Any, input_id: int) -> None:
    allocate(self, request, input_id)
    self.free_encoder_input(request, input_id)


def _counts_a_token_more(allocate: Any, self: Any, request: Any, input_id: int) -> None:
    allocate(self, request, input_id)
    self.num_free_slots -= 1


def _twice(right: Any, self: Any, *given: Any) -> None:
    right(self, *given)
    right(self, *given)


def _all_tokens_are_asked_for(
    right: Any, self: Any, num_tokens: int, num_hits: int, **more: Any
) -> None:
    right(self, num_tokens + num_hits, num_hits, **more)


class Forgetful(set[int]):
    """What is in it is not found."""

    def __contains__(self, _one: object) -> bool:
        return False


def _stores_under_way_are_forgotten(make: Any, self: Any, *given: Any, **more: Any) -> None:
    make(self, *given, **more)
    self._in_flight_store_gpu_blocks = Forgetful()


def _key_without_place(made: Any, *given: Any) -> Any:
    keys, image = made(*given)
    return [key[:2] if isinstance(key, tuple) else key for key in keys], image


def _parts_of_two_lookups(allocate: Any, self: Any, request: Any, *given: Any, **more: Any) -> Any:
    blocks = allocate(self, request, *given, **more)
    external = more.get("num_external_computed_tokens")
    if blocks is not None and external is not None and request.prefill_stats is not None:
        request.prefill_stats.num_external_cached_tokens = external
    return blocks


def image(which: int) -> SubmitRequest:
    """A request with one of several images."""
    return SubmitRequest(0, 8, images=(Image(which, 1, 3),))


TWICE = SubmitRequest(0, 14), Drain(), SubmitRequest(0, 14)
STATES = Group("full", 4), Group("mamba", 4)
ELSEWHERE = (
    SubmitRequest(0, 5, images=(Image(1, 1, 4, before=1),)),
    SubmitRequest(0, 5, images=(Image(1, 0, 4),)),
)
"""An image that begins at another place of a block."""


def images(name: str = "images") -> EpisodeResult:
    """There is room for two of three images, and a step computes the third and the first."""
    one, two, three = map(image, range(3))
    actions = (one, Drain(), two, Drain(), ResetCache(), three, one, RunSteps())
    return played(name, *actions, engine=engine_of(num_blocks=32), encoder_tokens=6)


def _drops_what_it_has(self: Any) -> list[str]:
    """What was evicted early in a step is dropped, also if it was computed again in it."""
    dropped, self.freed = self.freed, []
    return list(dropped)


def encoded() -> EpisodeResult:
    """A request of several chunks on an instance that only encodes."""
    request = SubmitRequest(0, 12, max_tokens=1, images=(Image(0, 6, 3),))
    engine = engine_of(num_blocks=32, chunk_tokens=4)
    return played("images-encoded", request, Drain(), engine=engine, encoder_tokens=6)


def _with_tokens(made: Any, step: Any) -> Any:
    output = made(step)
    return dataclasses.replace(output, sampled_token_ids=[[0] for _ in output.req_ids])


def _closes_at_the_end_of_a_copy(poll: Any, self: Any) -> None:
    for each in self._transfers.values():
        self._agent.deregister_memory(each.files_desc)
    poll(self)


def pair(name: str, *prompts: Action, **plan: Any) -> Callable[[], EpisodeResult]:
    """Prompts that D loads, or those that are usual."""
    return lambda: played(name, *(prompts or PROMPTS), **plan)


def beside_states(name: str, prefill: int, decode: int) -> Callable[[], EpisodeResult]:
    """Prompts that D loads with Mamba states, on unequal ranks."""
    engine = engine_of(STATES, 48)
    actions = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
    return lambda: played(name, *actions, engine=engine, **between_ranks(prefill, decode))


def _one_clock(begun: Any, worker: Any, metadata: Any) -> None:
    metadata.scheduler_clock = 0.0
    begun(worker, metadata)


def _copied_twice(_: Any, groups: Any, ratio: int) -> Any:
    return [[block * ratio for block in each for _ in range(ratio)] for each in groups]


def _reversed_read(paired: Any, *given: Any, **named: Any) -> Any:
    ours, theirs = paired(*given, **named)
    return ours, [list(reversed(each)) for each in theirs]


def _reversed_write(started: Any, worker: Any, name: str, blocks: Any, registered: Any) -> None:
    started(worker, name, tuple(list(reversed(each)) for each in blocks), registered)


def _as_wide_as_the_first(register: Any, self: Any, kv_caches: Any) -> Any:
    [group] = self.kv_cache_config.kv_cache_groups
    specs = group.kv_cache_spec.kv_cache_specs
    specs.update(dict.fromkeys(specs, next(iter(specs.values()))))
    return register(self, kv_caches)


def _heads_of_the_first_rank(planned: Any, **named: Any) -> Any:
    sends, _, _, size = planned(**named)
    return sends, 0, 0, size


async def _nothing_is_sent(_worker: Any) -> set[str]:
    return set()


def _ends_a_block_early(matched: Any, self: Any, request: Any, computed: int) -> Any:
    class Shorter:
        """A request with a block less."""

        num_tokens = request.num_tokens - self.block_size

        def __getattr__(self, name: str) -> Any:
            return getattr(request, name)

    return matched(self, Shorter(), computed)


def _finds_a_block_less(look_up: Any, self: Any, *arguments: Any) -> Any:
    found = look_up(self, *arguments)
    return found and found - self.config.kv_group_configs[0].tokens_per_block


def _without_salt(begin: Any, self: Any, request: Any) -> None:
    begin(self, request)
    self.cache_salt = ""


def _without_own_hits(made: Any, tracker: Any, *more: Any, **named: Any) -> Any:
    hit, tracker.num_vllm_hit_blocks = tracker.num_vllm_hit_blocks, 0
    try:
        return made(tracker, *more, **named)
    finally:
        tracker.num_vllm_hit_blocks = hit


_known: dict[Any, Any] = {}


def _asks_once(asks: Any, worker: Any, host: str, port: int, *more: Any) -> Any:
    """Each later engine at an address is taken for the first one."""
    key = worker.engine_id, port
    if key not in _known:
        _known[key] = asks(worker, host, port, *more)
    return _known[key]


def _misplaces(part: str) -> Callable[..., Any]:
    """D puts a part of a state into the wrong place of the page."""

    def misplaced(built: Any, self: Any, addresses: list[int]) -> Any:
        rows = built(self, addresses)
        conv, _ = self._mamba_ssm_size
        of_head = (rows[:, 0] - addresses[0]) % self.block_stride_per_layer[0] == conv
        rows[of_head if part == "head" else ~of_head, 0] += 4
        return rows

    return misplaced


def on_ranks(name: str, layers: ConnectorPlan) -> Callable[[], EpisodeResult]:
    """Prompts of two families that are loaded on several ranks."""
    prompts = SubmitRequest(0, 14), SubmitRequest(1, 14), Drain()
    ranks: dict[str, Any] = {"ranks": layers.ranks, "tensor": layers.tensor}
    engine = engine_of(layers.engine.groups)
    return pair(name, *prompts, ResetCache(), *prompts, engine=engine, **ranks)


def _believes_in_one_rank(made: Any, self: Any, vllm_config: Any, *more: Any, **named: Any) -> None:
    config = copy.copy(vllm_config)
    config.parallel_config = copy.copy(vllm_config.parallel_config)
    config.parallel_config.decode_context_parallel_size = 1
    made(self, config, *more, **named)


def _without_a_field(field: str) -> Callable[..., Any]:
    """The path of a file does not name this."""
    return lambda placed, root, fields: placed(root, {**fields, field: ""})


def _writes_no_file(_tensors: Any, event: Any, filename: str, lock: int | None) -> None:
    event.synchronize()
    Path(filename).touch()
    if lock is not None:
        os.close(lock)


hidden = pair("hidden-states", *PROMPTS_WITH_STATES, **saving_states(HIDDEN[0]))
"""Hidden states of three prompts are saved."""
FIRST = AGAIN[0]
FOUR = tuple(SubmitRequest(family, 14) for family in range(4))
AFTER_RESTARTS = (
    *(*PROMPTS, Restart(), SubmitRequest(1, 14, 3), Drain(), ResetCache()),
    *(*PROMPTS, Restart(), *PROMPTS),
)
ASKED = SubmitRequest(0, 14, 2), Drain(), SubmitRequest(0, 14, 2, asks=((SOURCE, 0),))
EMBEDDED = SubmitRequest(0, 14, 2, rows=Rows(8, 4))

TIGHT = engine_of(num_blocks=6)
"""P has blocks for two requests that share some, and no others."""

STATE_OFFSETS = (
    f"{V1}.ssm_conv_transfer_utils:MambaConvSplitInfo.remote_conv_offsets",
    lambda right, self, _, on: right(self, 0, on),
)
"""Each rank of the side with more of them takes what the first one has."""

asked = pair(
    "offloading-peers",
    *ASKED,
    copies=LATE,
)
"""The second engine gets the prompt from the first one."""


def of_lmcache(*actions: Action) -> Callable[[], EpisodeResult]:
    """Requests whose prompts are stored in LMCache."""
    engine = engine_of(num_blocks=20, chunk_tokens=5)
    return lambda: played("lmcache", *actions, engine=engine, copies=Copies(late=True, steps=1))


LONG = SubmitRequest(0, 17)
HITS_MORE = (
    *(SubmitRequest(0, 21), SubmitRequest(0, 21, max_tokens=2), RunSteps(3), AbortRequest(0)),
    *(SubmitRequest(0, 24, max_tokens=4), Drain(), ResetCache(), SubmitRequest(0, 21)),
)
"""The third request hits more in the cache of its engine than LMCache has by then."""

buffered = pair(
    "nixl-pull",
    SubmitRequest(0, 22, 2),
    engine=engine_of(BUFFERED[0].engine.groups, 48),
    buffered=True,
)

PAUSED = SubmitRequest(0, 14, 5), RunSteps(5), AbortRequest(), PauseEngine(), Drain()

LOADS_UNDER_A_PAUSE = (
    *(SubmitRequest(0, 14), Drain(), ResetCache(), SubmitRequest(0, 14, 2), RunSteps()),
    *(PauseEngine(new=True), SubmitRequest(1, 14), Drain(), ResumeEngine()),
)

PLANTED: dict[str, Mistake] = {
    "an engine core takes the newest output first": Mistake(
        line(
            "vllm.v1.engine.core:EngineCore.step_with_batch_queue",
            "future, scheduler_output, exec_model_fut = batch_queue.pop()",
            "future, scheduler_output, exec_model_fut = batch_queue.popleft()",
        ),
        "every_request_ends",
        lambda: played("simple-cpu", *PROMPTS, engine=engine_of(steps_in_flight=2)),
    ),
    "a paused engine does not look whether copies have ended": Mistake(
        around(
            f"{SCHEDULER}.has_finished_requests",
            lambda right, self: self.pause_state.name == "UNPAUSED" and right(self),
        ),
        "kept_blocks_are_given_back",
        lambda: played("hidden-states", *PAUSED, **saving_states(HIDDEN[0], late=True)),
    ),
    "a request that has loaded waits for the end of a pause, as new ones do": Mistake(
        line(
            f"{SCHEDULER}.schedule",
            "request_queue = self.kv_holding_waiting",
            "request_queue = () if self._pause_state else self.kv_holding_waiting",
        ),
        "every_request_ends",
        lambda: played("simple-cpu", *LOADS_UNDER_A_PAUSE, engine=engine_of(num_blocks=64)),
    ),
    "an image is free as soon as its room is taken": Mistake(
        around(f"{ENCODER}.allocate", _free_before_the_step),
        "encoder_output_is_there",
        images,
    ),
    "an image takes a token more than it has": Mistake(
        around(f"{ENCODER}.allocate", _counts_a_token_more),
        "encoder_room_adds_up",
        images,
    ),
    "images of one length have one file": Mistake(
        around(
            "vllm.distributed.ec_transfer.ec_connector.example_connector:"
            "ECExampleConnector._generate_filename_debug",
            lambda right, self, name: right(self, name[1:]),
        ),
        "encoder_output_is_its_own",
        lambda: images("images-stored"),
    ),
    "the statistics count each request again": Mistake(
        around(f"{MANAGER}.record_prefix_cache_stats", _twice),
        "statistics_count_once",
        images,
    ),
    "the connector's statistics count what the engine's own cache has (vllm#30522)": Mistake(
        around("vllm.v1.metrics.stats:PrefixCacheStats.record", _all_tokens_are_asked_for),
        "statistics_count_tokens",
        lambda: played("images", *TWICE),
    ),
    "no token of a prompt is reported as new in the cache": Mistake(
        instead(f"{MANAGER}.estimate_cached_tokens", lambda *_: 0),
        "reported_tokens_are_cached",
        images,
    ),
    "a prompt that must be computed whole is looked up like others": Mistake(
        instead(f"{MANAGER}.prefix_cache_lookup_enabled", lambda self, _: self.enable_caching),
        "recomputed_prompt_is_not_reused",
        lambda: played("images", *TWICE[:2], SubmitRequest(0, 14, computes_all=True)),
    ),
    "a block of the engine's own cache has a key of its tokens alone": Mistake(
        instead(f"{UTILS}:generate_block_hash_extra_keys", lambda _r, _s, _e, image: (None, image)),
        "request_reads_its_own_tokens",
        images,
    ),
    "a store begins at once, beside the step that computes its blocks": Mistake(
        around(
            "vllm.v1.simple_kv_offload.copy_backend:DmaCopyBackend.launch_copy",
            lambda right, self, *given, **more: right(self, *given, **more | {"wait_event": None}),
        ),
        "copies_follow_the_model",
        lambda: played(
            "simple-cpu",
            SubmitRequest(0, 4),
            engine=engine_of(STATES, 17, chunk_tokens=5),
            replicas=True,
        ),
    ),
    "a block is stored again while it is stored, because another request has it too": Mistake(
        around(
            "vllm.v1.simple_kv_offload.manager:SimpleCPUOffloadScheduler.__init__",
            _stores_under_way_are_forgotten,
        ),
        "copies_are_made_once",
        lambda: played("simple-cpu-roomy", *TWICE[::2], copies=LATE),
    ),
    "the tiers behind the first one are not notified of ends": Mistake(
        nothing(f"{TIERS}.manager:TieringOffloadingManager._maybe_finalize_request"),
        "tier_is_notified_of_the_end",
        lambda: played("offloading-files", SubmitRequest(0, 14)),
    ),
    "a block's key has the name of an image and not where it begins (vllm#36708)": Mistake(
        around(f"{UTILS}:_gen_mm_extra_hash_keys", _key_without_place),
        "request_reads_its_own_tokens",
        lambda: played("images", *ELSEWHERE, encoder_tokens=4),
    ),
    "of two look-ups of a prompt parts of each count (vllm#37460)": Mistake(
        around(f"{MANAGER}.allocate_slots", _parts_of_two_lookups),
        "prompt_statistics_add_up",
        lambda: played("offloading", *AGAIN),
    ),
    "an image is dropped and computed again in a step": Mistake(
        instead(f"{ENCODER}.get_freed_mm_hashes", _drops_what_it_has),
        "encoder_drops_what_it_gave_up",
        images,
    ),
    "a request ends before its image is encoded (vllm#50275)": Mistake(
        around("vllm.v1.outputs:make_empty_encoder_model_runner_output", _with_tokens),
        "encoder_instance_encodes_all",
        encoded,
    ),
    "what an agent raises at the end of a copy is not caught (vllm#49947)": Mistake(
        around(
            f"{TIERS}.obj.manager:ObjectStoreSecondaryTierManager._poll_active_transfers",
            _closes_at_the_end_of_a_copy,
        ),
        "engine_survives",
        lambda: played("offloading-objects", SubmitRequest(0, 14), Fail(2, raises=True)),
    ),
    "the last token of an answer is stored (vllm#54288)": Mistake(
        around(
            OFFLOADABLE,
            lambda right, self, status, computed: int(
                right(self, status, computed + status.req.is_finished())
            ),
        ),
        LOADED,
        lambda: played("offloading-roomy", *turns(2), options=(STORE_ANSWERS[0],)),
    ),
    "what an aborted request has not computed is stored (vllm#49146)": Mistake(
        both(
            line(
                f"{OFFLOADED}._build_store_jobs",
                "num_tokens_after_batch = req.num_computed_tokens\n",
                "num_tokens_after_batch = req.num_tokens\n",
            ),
            line(STORABLE, "min(num_chunks, num_allocated_chunks, num_keyed_chunks)", "num_chunks"),
        ),
        SURVIVES,
        lambda: played("offloading", PROMPTS[0], RunSteps(), PROMPTS[1], AbortRequest(-1), Drain()),
    ),
    "an answer is not stored": Mistake(
        around(
            OFFLOADABLE,
            lambda right, self, status, computed: min(
                int(right(self, status, computed)), status.req.num_prompt_tokens
            ),
        ),
        "stored_prefix_is_offered",
        lambda: played("offloading-roomy", *turns(7), options=(STORE_ANSWERS[0],)),
    ),
    "copies are as wide as the first layer": Mistake(
        around(
            f"{V1}.offloading.worker:OffloadingConnectorWorker.register_kv_caches",
            _as_wide_as_the_first,
        ),
        "load_stays_in_its_blocks",
        lambda: played("offloading", *AGAIN, engine=engine_of(num_blocks=64), uneven=True),
    ),
    "half of a block is copied twice": Mistake(
        instead(f"{WORKER}._logical_to_kernel_block_ids", _copied_twice),
        LOADED,
        pair("nixl-pull", engine=engine_of(num_blocks=48), kernel_blocks=2),
    ),
    "D reads blocks in another order": Mistake(
        around(f"{PULL}._apply_prefix_caching", _reversed_read), LOADED, pair("nixl-pull")
    ),
    "P writes blocks in another order": Mistake(
        around(f"{PUSH}._do_start_push_kv", _reversed_write), LOADED, pair("nixl-push")
    ),
    "P loses a registration": Mistake(
        nothing(f"{PUSH}._handle_push_reg_notif"), "every_request_ends", pair("nixl-push")
    ),
    "D reads the heads of another rank": Mistake(
        around(
            f"{NIXL_PLACE}.base_worker:compute_tp_mapping",
            lambda right, *given, **named: dataclasses.replace(
                right(*given, **named), rank_offset_factor=0
            ),
        ),
        LOADED,
        pair("nixl-pull", **between_ranks(1, 2)),
    ),
    "a worker takes the scheduler's time for its own": Mistake(
        around(f"{PULL}.start_load_kv", _one_clock),
        LOADED,
        pair(
            "nixl-pull",
            *(*PROMPTS, SubmitRequest(1, 14, 3), SubmitRequest(1, 10, 3)),
            engine=TIGHT,
            copies=LATE,
            clock_ahead=100,
        ),
    ),
    "the states of another rank of P": Mistake(
        around(*STATE_OFFSETS), LOADED, beside_states("nixl-pull", 1, 2)
    ),
    "the states of another rank of D": Mistake(
        around(*STATE_OFFSETS), LOADED, beside_states("nixl-push", 2, 1)
    ),
    "nothing is copied to the buffers of the host": Mistake(
        nothing(f"{WORKER}.save_kv_to_host"), LOADED, buffered
    ),
    "nothing is copied from the buffers of the host": Mistake(
        nothing(f"{WORKER}.sync_recved_kv_to_device"), LOADED, buffered
    ),
    "P of Mooncake writes blocks in another order": Mistake(
        around(
            f"{MOONCAKE}:group_concurrent_contiguous",
            lambda right, ours, theirs: right(ours, theirs[::-1]),
        ),
        LOADED,
        pair("mooncake"),
    ),
    "P of Mooncake writes the heads of another rank": Mistake(
        around(f"{MOONCAKE}:_compute_sender_transfer_plan", _heads_of_the_first_rank),
        LOADED,
        pair("mooncake", **between_ranks(1, 2)),
    ),
    "D does not read an answer of Mooncake": Mistake(
        nothing(f"{MOONCAKE}:MooncakeConnectorWorker.process_pulling_result"),
        "every_request_ends",
        pair("mooncake"),
    ),
    "P of Mooncake keeps its blocks for ever": Mistake(
        instead(
            f"{MOONCAKE}:MooncakeConnectorWorker.fetch_finished_sending_reqs", _nothing_is_sent
        ),
        "kept_blocks_are_given_back",
        pair("mooncake"),
    ),
    "a peer pairs the blocks of a copy from the wrong end": Mistake(
        around(
            f"{P2P}.data.nixl:NixlTransport.write_blocks",
            lambda right, self, peer, local, remote: right(self, peer, local, remote[::-1]),
        ),
        LOADED,
        asked,
    ),
    "a peer that is asked what it has does not answer": Mistake(
        nothing(f"{P2P}.session.server:ServerRole.on_lookup"), "every_request_ends", asked
    ),
    "a block is not stored": Mistake(
        around(
            "vllm.v1.kv_offload.cpu.manager:CPUOffloadingManager.prepare_store",
            lambda right, self, keys, *more: right(self, list(keys)[:-1], *more),
        ),
        "stored_prefix_is_offered",
        lambda: played("offloading-roomy", *AGAIN),
    ),
    "a block is not found": Mistake(
        around(f"{OFFLOADED}._lookup", _finds_a_block_less),
        "stored_prefix_is_offered",
        lambda: played("offloading-roomy", *AGAIN),
    ),
    "a block in the memory of the CPU is not found": Mistake(
        around(
            "vllm.v1.simple_kv_offload.manager:"
            "SimpleCPUOffloadScheduler.get_num_new_matched_tokens",
            _ends_a_block_early,
        ),
        "stored_prefix_is_offered",
        lambda: played("simple-cpu-roomy", *AGAIN),
    ),
    "the salt is not in LMCache's key": Mistake(
        around(f"{LMCACHE}:LMCacheMPRequestTracker.__init__", _without_salt),
        LOADED,
        of_lmcache(LONG, Drain(), ResetCache(), SubmitRequest(0, 17, beside="salt")),
    ),
    "LMCache stores what is not computed yet": Mistake(
        around(
            f"{LMCACHE}:LMCacheMPRequestTracker.increase_num_scheduled_tokens",
            lambda right, self, tokens: right(self, 2 * tokens),
        ),
        LOADED,
        of_lmcache(LONG, Drain(), ResetCache(), LONG),
    ),
    "LMCache does not count the engine's own hits (vllm#39719)": Mistake(
        around(f"{LMCACHE}:LMCacheMPRequestMetadata.GetStoreMetadata", _without_own_hits),
        "stored_prefix_is_offered",
        of_lmcache(*HITS_MORE),
    ),
    "an engine is taken for the one before it at its address": Mistake(
        around(f"{WORKER}._nixl_handshake", _asks_once),
        SURVIVES,
        pair("nixl-pull", *AFTER_RESTARTS),
    ),
    "one that is gone is not forgotten": Mistake(
        both(
            nothing(f"{WORKER}._evict_stale_engines"), nothing(f"{WORKER}._cleanup_remote_engines")
        ),
        "gone_engines_are_forgotten",
        pair("nixl-pull", *PROMPTS, Restart(), SubmitRequest(1, 14, 3), Drain(), copies=LATE),
    ),
    "P awaits a read of a request that was aborted (vllm#26012)": Mistake(
        line(
            f"{NIXL_PLACE}.pull_scheduler:NixlPullConnectorScheduler.request_finished",
            "self._reqs_not_processed.add(request.request_id)",
            "pass",
        ),
        "gone_requests_are_forgotten",
        lambda: played(
            *("nixl-pull", LONG, RunSteps(1), AbortRequest(0), *PROMPTS),
            engine=engine_of(chunk_tokens=8),
        ),
    ),
    "the convolution of a state is put into the wrong place of its page": Mistake(
        around(f"{WORKER}._build_mamba_local", _misplaces("convolution")),
        LOADED,
        beside_states("nixl-pull", 1, 1),
    ),
    "the head of a state is put into the wrong place of its page": Mistake(
        around(f"{WORKER}._build_mamba_local", _misplaces("head")),
        LOADED,
        beside_states("nixl-pull", 1, 1),
    ),
    "states of several ranks have one key (vllm#49499)": Mistake(
        instead(
            f"{V1}.mooncake.store.worker:MooncakeStoreWorker._spec_tp_replication_factor",
            lambda *_: 2,
        ),
        LOADED,
        on_ranks("mooncake-store", next(each for each in SPREAD if each.tensor)),
    ),
    **{
        f"the blocks of {name} are taken for those of one rank": Mistake(
            around(f"{V1}.{kind}.__init__", _believes_in_one_rank), rule, on_ranks(name, SPREAD[0])
        )
        for name, kind, rule in (
            ("offloading", OFFLOADING, SURVIVES),
            ("offloading-roomy", OFFLOADING, SURVIVES),
            ("simple-cpu-roomy", SIMPLE, "events_have_tokens_of_their_hash"),
        )
    },
    "files of any model are in one folder": Mistake(
        around(f"{MAPPER}._compute_base_path", _without_a_field("model_name")),
        LOADED,
        pair("offloading-files", FIRST, Restart("model"), FIRST),
    ),
    "files with any type of values are in one folder": Mistake(
        around(f"{MAPPER}._compute_base_path", _without_a_field("dtype")),
        LOADED,
        pair("offloading-files", FIRST, Restart("dtype"), FIRST),
    ),
    "replicas share a region of memory": Mistake(
        around(
            "vllm.v1.kv_offload.cpu.shared_offload_region:SharedOffloadRegion.__init__",
            lambda right, self, engine_id, **more: right(self, engine_id=engine_id[:-1], **more),
        ),
        LOADED,
        pair("offloading-files", *FOUR, Drain(), ResetCache(), *FOUR, replicas=True),
    ),
    "the client of a store stays open": Mistake(
        nothing(f"{V1}.mooncake.store.connector:MooncakeStoreConnector.shutdown"),
        "closed_at_shutdown",
        pair("mooncake-store", FIRST),
    ),
    "nobody counts the blocks that P keeps for D": Mistake(
        line(
            f"{V1}.multi_connector:MultiConnector._aggregate_request_finished",
            "async_saves += 1",
            "async_saves += 0",
        ),
        "reports_are_of_known_transfers",
        pair("multi-nixl-store", *PROMPTS, Drain(), ResetCache(), *PROMPTS, Drain(), copies=LATE),
    ),
    "embeddings are in no key": Mistake(
        instead(f"{UTILS}:_gen_prompt_embeds_extra_hash_keys", lambda *_: []),
        "request_reads_its_own_tokens",
        pair("offloading-roomy", EMBEDDED, Drain(), msgspec.structs.replace(EMBEDDED, family=1)),
    ),
    "a load from a peer has no deadline": Mistake(
        instead(f"{P2P}.session.client:_LOAD_TIMEOUT_S", float("inf")),
        "every_request_ends",
        pair("offloading-peers", *ASKED, RunSteps(3), Stand("first", 100), Drain(), copies=LATE),
    ),
    "a block that failed alone counts as loaded": Mistake(
        around(
            "kvproof.live.fakes.mooncake:Store.batch_get_into_multi_buffers",
            lambda right, *given: (lambda found: [max(found)] * len(found))(right(*given)),
        ),
        LOADED,
        pair("mooncake-store", FIRST, Drain(), Fail(1, call="get", value=1), *AGAIN[1:]),
    ),
    "nobody waits for what is saved beside drafts": Mistake(
        nothing(f"{MIXIN}.finalize_kv_connector"),
        "kept_blocks_are_given_back",
        pair(
            "mooncake-store", *AGAIN, engine=engine_of(num_blocks=64, drafts=2), first_runner=True
        ),
    ),
    "hidden states are read by the block table of the first group (vllm#45849)": Mistake(
        instead(f"{STATES_KIND}._find_cache_kv_group_id", classmethod(lambda *_: 0)),
        SAVED,
        hidden,
    ),
    "hidden states are read in blocks of another size (vllm#46301)": Mistake(
        around(
            f"{V1}.example_hidden_states_connector:extract_from_kv_cache",
            lambda right, cache, slots, tokens: right(cache, slots // 2, tokens),
        ),
        SAVED,
        hidden,
    ),
    "a reset that the connector refuses is told as done": Mistake(
        both(
            instead(f"{SIMPLE_SCHEDULER}.reset", lambda _self: False),
            line(
                f"{SCHEDULER}.reset_connector_cache",
                "self.connector.reset_cache() is False",
                "self.connector.reset_cache() == 0 and False",
            ),
        ),
        "reset_is_not_feigned",
        lambda: played("simple-cpu", SubmitRequest(0, 8), Drain(), ResetCache(connector=True)),
    ),
    "the file of hidden states is not written": Mistake(
        instead(f"{STATES_KIND}._write_tensors", staticmethod(_writes_no_file)),
        SAVED,
        hidden,
    ),
}
"""Each is shown by an episode, in which its rule is broken first."""


@pytest.mark.parametrize("mistake", PLANTED)
def test_an_episode_names_it(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[mistake]
    rule, episode = planted.finds, planted.shown_by
    right = episode()
    known = rules(right)
    assert known <= {COUNTED_TWICE}
    assert rule == LOADED or right.times_judged[rule]  # perhaps nothing is loaded without it
    planted.patch(monkeypatch)
    named = [each.invariant for each in episode().findings if each.invariant not in known]
    assert named[:1] == [rule]


def test_an_instance_that_encodes_is_judged() -> None:
    assert encoded().judged["requests that were encoded"] == 1


@pytest.mark.parametrize(("kept", "breaks"), [(True, set()), (False, {"images_are_not_cut"})])
def test_an_image_that_may_not_be_cut_is_computed_as_a_whole(
    kept: bool, breaks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = EncoderCache.__init__

    def begun(cache: EncoderCache, room: int, vllm_config: Any, ahead: int) -> None:
        scheduling = vllm_config.scheduler_config
        scheduling.disable_chunked_mm_input = True
        begin(cache, room, vllm_config, ahead)
        scheduling.disable_chunked_mm_input = kept

    monkeypatch.setattr(EncoderCache, "__init__", begun)
    image = SubmitRequest(0, 12, 2, images=(Image(0, 5, 6),))
    engine = engine_of(chunk_tokens=8)
    assert rules(played("images", image, engine=engine, encoder_tokens=8)) == breaks


@pytest.mark.parametrize("uncut", [False, True])
def test_a_plan_says_whether_images_may_be_cut(uncut: bool) -> None:
    image = SubmitRequest(0, 12, 2, images=(Image(0, 5, 6),))
    engine = engine_of(chunk_tokens=8)
    result = played("images", image, engine=engine, encoder_tokens=8, uncut=uncut)
    assert bool(result.excused["images_are_not_cut"]) is not uncut


@pytest.mark.parametrize("ahead", [False, True])
def test_a_drafter_reads_one_token_ahead_of_a_step(
    ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for the whole image, a step ends where the drafter does not read it yet. With
    the mistake of vllm#34220 it ends right before the image."""
    image = SubmitRequest(0, 12, 2, images=(Image(0, 6, 6),))
    engine = engine_of((Group("full", 4, eagle=True),), chunk_tokens=8, drafts=2)
    if ahead:
        old = "start_pos - (num_computed_tokens + shift_computed_tokens)"
        new = "start_pos - num_computed_tokens"
        line(f"{SCHEDULER}._try_schedule_encoder_inputs", old, new)(monkeypatch)
    result = played("images", image, engine=engine, encoder_tokens=8, uncut=True)
    assert result.excused["drafter_has_what_it_reads"] == ahead


@pytest.mark.parametrize("lost", [False, True])
def test_a_request_gets_nothing_of_a_tier_that_it_does_not_want(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lost:
        line(
            f"{V1}.offloading.scheduler:_create_req_context",
            "load_filter = _parse_tier_filter(raw)",
            "_parse_tier_filter(raw)",
        )(monkeypatch)
    none = SubmitRequest(1, 14, asks=((LOAD_TIERS, 0),))
    result = played("offloading-files", *FOUR, Drain(), Restart(), FOUR[0], Drain(), none)
    rule = "tiers_are_asked_as_wanted"
    assert result.times_judged[rule]
    assert bool(result.excused[rule]) is lost
    assert not result.findings


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_slow_tier_gives_is_kept_where_its_load_fails_in_part(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lost:
        line(
            f"{TIERS}.manager:TieringOffloadingManager._complete_promotion",
            "elif successful_keys:",
            "elif successful_keys and not transfer_job.keys:",
        )(monkeypatch)
    prompt, fails = SubmitRequest(0, 20), Fail(1, call="get", value=2)
    result = played("offloading-files", prompt, Drain(), Restart(), fails, prompt)
    assert bool(result.excused["tiers_are_asked_once"]) is lost
    assert not result.findings


@pytest.mark.parametrize("half", [False, True])
def test_events_tell_of_each_block_of_a_chunk_that_is_evicted(
    half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for four chunks. If the removal of a block is not told, its next store is told
    as one of a block that is there."""
    if half:
        place = f"{V1}.offloading.events:OffloadingEventsTracker._take_removed_event"
        line(place, "for h in meta.block_hashes", "for h in meta.block_hashes[-1:]")(monkeypatch)
    others = [each for family in range(3) for each in (SubmitRequest(family, 24, 1), Drain())]
    result = played("offloading-events", *others, ResetCache(), *others)
    assert bool(result.excused["stored_blocks_are_announced_once"]) is half
