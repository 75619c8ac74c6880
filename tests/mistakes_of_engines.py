"""Mistakes of an engine core, in its start-up and in its loop, planted in real vLLM, and the check
that finds each."""

import asyncio
import dataclasses
from typing import Any, NamedTuple

import pytest

from kvproof.model.plans.random_engines import COUNTED
from tests.in_vllm import (
    ASYNC,
    NIXL,
    SCHEDULER,
    Change,
    Mistake,
    always,
    around,
    both,
    instead,
    line,
    nothing,
    rewritten,
)

UTILS = "vllm.v1.core.kv_cache_utils"
MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
MODULE = "vllm.v1.engine.core"
CORE = f"{MODULE}:EngineCore"
PROC = f"{MODULE}:EngineCoreProc"
KINDS = "vllm.v1.kv_cache_interface"
MANAGER = "vllm.v1.structured_output:StructuredOutputManager"
CLIENT = "vllm.v1.engine.core_client:MPClient"
METRICS = "vllm.v1.metrics.loggers:PrometheusStatLogger"
FRONT = "vllm.v1.engine.llm_engine:LLMEngine"
SERVING = "vllm.entrypoints.generate.base.serving:GenerateBaseServing"
PULL = f"{NIXL}.pull_scheduler:NixlPullConnectorScheduler"


def _line(old: str, new: str) -> Change:
    """Another line in `get_kv_cache_configs`, which two modules have."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

        wrong = rewritten(get_kv_cache_configs, old, new)
        both(*(instead(f"{m}:get_kv_cache_configs", wrong) for m in (UTILS, MODULE)))(patch)

    return plant


def _like_full_attention(_: Any, manager: Any, *given: Any) -> Any:
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    return FullAttentionManager.allocate_new_blocks(manager, *given)


def _first_group(right: Any, config: Any, groups: Any) -> Any:
    return right(config, groups[:1])


def _full_attention_first(right: Any, config: Any, specs: Any) -> Any:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    full = [name for name, each in specs.items() if isinstance(each, FullAttentionSpec)]
    return right(config, {full[0]: specs[full[0]], **specs})


def _half_the_stride(right: Any, config: Any, groups: Any, memory: int) -> Any:
    made = right(config, groups, memory)
    for tensor in made.kv_cache_tensors:
        tensor.block_stride //= 2
    return made


def _foreign_layer(right: Any, config: Any, groups: Any, memory: int) -> Any:
    made = right(config, groups, memory)
    made.kv_cache_tensors[0].layers = [*made.kv_cache_tensors[0].layers, "layers.99"]
    return made


def _smaller_window(right: Any, config: Any, layers: Any) -> Any:
    groups = right(config, layers)
    for group in groups:
        if hasattr(group.kv_cache_spec, "sliding_window") and group.kv_cache_spec.sliding_window:
            spec = group.kv_cache_spec
            group.kv_cache_spec = dataclasses.replace(spec, sliding_window=spec.sliding_window - 1)
    return groups


def _one_width(patch: pytest.MonkeyPatch) -> None:
    import vllm.v1.kv_cache_interface as kinds

    wrong = kinds.KVCacheSpec.max_num_blocks_per_req
    patch.setattr(kinds.UniformTypeKVCacheSpecs, "max_num_blocks_per_req", wrong)


def _nameless(right: Any, spec: Any) -> Any:
    from vllm.v1.kv_cache_interface import KVCacheSpecKind

    several = {right(each) for each in getattr(spec, "kv_cache_specs", {}).values()}
    return KVCacheSpecKind.UNKNOWN if len(several) > 1 else right(spec)


def _twice(right: Any, self: Any, requests: Any) -> None:
    right(self, requests)
    right(self, requests)


def _lost_in_a_pause(right: Any, self: Any, *given: Any) -> Any:
    from vllm.v1.core.sched.interface import PauseState

    outputs = right(self, *given)
    if self.pause_state != PauseState.UNPAUSED:
        for each in (one for some in outputs.values() for one in some.outputs):
            each.new_token_ids = []
    return outputs


def _impatient(right: Any, self: Any, output: Any) -> None:
    right(self, output)
    output.pending_structured_output_tokens = False


def _jealous(right: Any, self: Any, request: Any) -> Any:
    assert not self.scheduler.running
    return right(self, request)


async def _silent(*_: Any, **__: Any) -> None:
    """Nobody is notified."""


def _left(right: Any, self: Any, work: Any, *given: Any) -> Any:
    """Nobody is notified when the client goes away."""

    async def cancelled() -> Any:
        try:
            return await work
        except asyncio.CancelledError:
            self.engine_client.notify_kv_transfer_request_rejected = _silent
            raise

    return right(self, cancelled(), *given)


def deaf(right: Any, request: Any, longest: int) -> bool:
    """What the model says of its end is not heard."""
    stops = set(request.sampling_params.stop_token_ids or ())
    early = request.num_output_tokens < request.max_tokens
    return bool(not (early and request.output_token_ids[-1] in stops) and right(request, longest))


class Shown(NamedTuple):
    """What shows a mistake which few engines show: what they have, where few would show it
    otherwise, and the number of one of them. It is taken first, and where it does not show it any
    more, all others are."""

    like: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    first: int = 0


REASONS: dict[str, Any] = {"given": True, "connected": False, "stages": 1}
"""Engines in which reasoning may end inside a step."""

MISTAKES: dict[str, Mistake] = {
    "numbers of another precision are not erased (vllm#47574)": Mistake(
        instead(
            f"{KINDS}:KVCacheConfig.needs_kv_cache_zeroing",
            property(lambda self: self.has_mamba_layers),
        ),
        "new_blocks_have_no_old_values",
    ),
    "the table of a group is not divided among ranks (vllm#50823)": Mistake(
        _one_width, "table_fits_its_layers", Shown(first=11)
    ),
    "a group of several kinds has no name (vllm#51218)": Mistake(
        around(f"{KINDS}:get_kv_cache_spec_kind", _nameless), "reported_kind_is_kept"
    ),
    "the null block is not counted": Mistake(
        _line("avail_mem - _pool_bytes_per_block(vllm_config, groups) if groups else ", ""),
        "admitted_length_is_served",
    ),
    "one group is counted (vllm#36030)": Mistake(
        around(f"{UTILS}:_max_memory_usage_bytes_from_groups", _first_group),
        "admitted_length_is_served",
        Shown(first=27),
    ),
    "the steps in flight are not counted (vllm#40946)": Mistake(
        around(
            f"{KINDS}:SlidingWindowSpec.max_admission_blocks_per_request",
            lambda right, self, *, max_model_len, **_: right(self, 0, max_model_len),
        ),
        "admitted_length_is_served",
        Shown(first=119),
    ),
    "a ring grows with its request": Mistake(
        around(f"{MANAGERS}:CircularBufferManager.allocate_new_blocks", _like_full_attention),
        "admitted_length_is_served",
        Shown({**COUNTED, "rings": True}, 138),
    ),
    "a reference window is a token too small": Mistake(
        line(
            f"{MANAGERS}:RSWAManager.remove_skipped_blocks",
            "processed_computed_tokens - self.rswa_window",
            "processed_computed_tokens - self.rswa_window + 2",
        ),
        "read_tokens_have_blocks",
        Shown({**COUNTED, "refers": True}),
    ),
    "the prompt before a reference window is freed": Mistake(
        line(
            f"{MANAGERS}:RSWAManager.remove_skipped_blocks",
            "cdiv(num_prompt_tokens, bs)",
            "num_prompt_tokens // bs",
        ),
        "read_tokens_have_blocks",
        Shown({**COUNTED, "refers": True}),
    ),
    "a model of windows alone is not expected (vllm#48256)": Mistake(
        around(f"{UTILS}:get_kv_cache_groups", _full_attention_first),
        "engine_survives",
        Shown({**COUNTED, "kinds": ("window",)}),
    ),
    "the richest worker decides": Mistake(
        _line("min_num_blocks = min(", "min_num_blocks = max("), "memory_is_not_exceeded"
    ),
    "each worker keeps its number": Mistake(
        _line("if kv_cache_config.num_blocks == min_num_blocks:", "if True:"), "engine_survives"
    ),
    "the override is ignored in the number": Mistake(
        around(f"{UTILS}:may_override_num_blocks", lambda _right, _config, blocks: blocks * 2),
        "override_is_the_number",
    ),
    "a block is smaller than its pages": Mistake(
        around(f"{UTILS}:_get_kv_cache_bytes_per_block", lambda right, *a: right(*a) - 4),
        "pages_lie_apart",
    ),
    "pages are too near": Mistake(
        around(f"{UTILS}:get_kv_cache_config_from_groups", _half_the_stride), "page_holds_its_block"
    ),
    "a layer of another worker": Mistake(
        around(f"{UTILS}:get_kv_cache_config_from_groups", _foreign_layer),
        "pages_are_of_own_layers",
    ),
    "half of the memory is used": Mistake(
        around(
            f"{UTILS}:get_kv_cache_config_from_groups",
            lambda right, config, groups, memory: right(config, groups, memory // 2),
        ),
        "memory_becomes_blocks",
    ),
    "a window is smaller": Mistake(
        around(f"{UTILS}:get_kv_cache_groups", _smaller_window), "layer_keeps_what_it_reads"
    ),
    "all stages are counted for each (vllm#33698)": Mistake(
        around(f"{UTILS}:_max_memory_usage_bytes_from_groups", lambda right, *a: 2 * right(*a)),
        "enough_memory_is_accepted",
    ),
    "pages without a common size have no other layout (vllm#48776)": Mistake(
        around(f"{UTILS}:_try_get_full_allocation_fallback_groups", lambda *_: None),
        "plenty_of_memory_is_enough",
        Shown(
            {
                **COUNTED,
                "kinds": ("mla", "window"),
            },
            23,
        ),
    ),
    "the first worker decides on the length": Mistake(
        around(
            f"{UTILS}:_auto_fit_max_model_len",
            lambda right, config, groups, memory: right(config, groups[-1:], [max(memory)]),
        ),
        "enough_memory_is_accepted",
        Shown(
            {
                **COUNTED,
                "fitted": True,
                "longer": True,
                "stages": 3,
            }
        ),
    ),
    "workers are not told the length": Mistake(
        nothing(f"{CORE}.collective_rpc"), "workers_know_the_length", Shown(first=31)
    ),
    "the concurrency of one group (vllm#48317)": Mistake(
        around(
            f"{UTILS}:get_max_concurrency_for_kv_cache_config",
            lambda right, config, made: right(
                config, dataclasses.replace(made, kv_cache_groups=made.kv_cache_groups[:1])
            ),
        ),
        "concurrency_is_what_fits",
    ),
    "a request that runs gets no block beside another one": Mistake(
        line(
            "vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",
            "if required_blocks > available_blocks:",
            "if required_blocks > available_blocks or (request.num_computed_tokens and "
            "required_blocks and len(self.coordinator.single_type_managers[0].req_to_blocks) > 1):",
        ),
        "reported_concurrency_is_served",
        Shown({**COUNTED, "chunk_tokens": 4}),
    ),
    "the scheduler gives out a block more": Mistake(
        around(
            f"{MODULE}:generate_scheduler_kv_cache_config",
            lambda right, made: dataclasses.replace(right(made), num_blocks=made[0].num_blocks + 1),
        ),
        "blocks_are_the_same_everywhere",
    ),
    "a request that waits is no work": Mistake(
        line(
            f"{SCHEDULER}.get_num_unfinished_requests", "num_waiting + num_running", "num_running"
        ),
        "idle_engine_has_no_waiting_request",
    ),
    "a pause never ends for the queue": Mistake(
        line(f"{CORE}.resume_scheduler", "PauseState.UNPAUSED", "PauseState.PAUSED_NEW"),
        "idle_engine_has_no_waiting_request",
    ),
    "no step publishes its events": Mistake(
        instead("vllm.v1.core.block_pool:BlockPool.take_events", lambda *_: []),
        "idle_engine_has_published",
    ),
    "a step in flight is no work": Mistake(
        line(f"{PROC}.has_work", "or bool(self.batch_queue)", ""), "idle_engine_has_every_output"
    ),
    "a transfer is no work (vllm#43433)": Mistake(
        line(
            f"{SCHEDULER}.has_finished_requests",
            "return len(self.requests) > (num_running + num_waiting)",
            "return False",
        ),
        "idle_engine_awaits_no_transfer",
    ),
    "a load that never began is not reported (vllm#41269)": Mistake(
        line(
            f"{PULL}.request_finished",
            "(request, [], (), False)",
            "None; del self._reqs_need_recv[request.request_id]",
        ),
        "ended_load_frees_its_prefill",
        Shown(first=20),
    ),
    "the front refuses a request and notifies nobody (vllm#41269)": Mistake(
        instead("vllm.v1.engine.async_llm:AsyncLLM.notify_kv_transfer_request_rejected", _silent),
        "ended_load_frees_its_prefill",
        Shown(first=20),
    ),
    "the client leaves the front, which notifies nobody (vllm#50425)": Mistake(
        around(f"{SERVING}._with_kv_transfer_rejection_cleanup", _left),
        "ended_load_frees_its_prefill",
        Shown(first=63),
    ),
    "of several requests of a client that goes away, the first alone is aborted": Mistake(
        line(
            f"{PROC}._handle_client_request",
            "self.abort_requests(request)",
            "self.abort_requests(request[:1])",
        ),
        "request_of_nobody_is_not_computed",
        Shown(first=94),
    ),
    "an abort is lost where messages are read": Mistake(
        line(f"{PROC}.process_input_sockets", "self.aborts_queue.put_nowait(request)", "continue"),
        "request_of_nobody_is_not_computed",
        Shown(first=19),
    ),
    "where messages are read, a request is refused while another one runs": Mistake(
        around(f"{CORE}.preprocess_add_request", _jealous), "sent_request_reaches_the_loop"
    ),
    "a request whose image is forgotten fails for ever (vllm#46747)": Mistake(
        line(
            f"{PROC}.process_input_sockets",
            "except MultiModalCacheMissError",
            "except TimeoutError",
        ),
        "forgotten_image_is_sent_again",
    ),
    "a buffer is used again before its message has left (vllm#50053)": Mistake(
        line(
            f"{PROC}.process_output_sockets",
            "self._send_msg_tracking_payload(",
            "(lambda to, them: to.send_multipart(them, copy=False, track=True))(",
        ),
        "engine_survives",
        Shown({"pools": True}),
    ),
    "every buffer is used again at once": Mistake(
        line(f"{PROC}.process_output_sockets", "if not tracker.done:", "if False:"),
        "engine_survives",
    ),
    "the next part of a session is lost if it comes early (vllm#52693)": Mistake(
        line(f"{SCHEDULER}.add_request", "existing.streaming_queue.append(update)", "pass"),
        "idle_engine_has_no_waiting_request",
        Shown(first=18),
    ),
    "the end of a session is lost if it comes early": Mistake(
        line(
            f"{SCHEDULER}.add_request",
            "existing.streaming_queue.append(update)",
            "existing.streaming_queue.extend([update] if update else [])",
        ),
        "workers_forget_ended_requests",
        Shown(first=18),
    ),
    "the last of the parts that came early is the next one": Mistake(
        line(
            f"{SCHEDULER}._handle_stopped_request",
            "streaming_queue.popleft()",
            "streaming_queue.pop()",
        ),
        "idle_engine_has_no_waiting_request",
        Shown(first=18),
    ),
    "blocks that were to be freed later stay": Mistake(
        nothing(f"{SCHEDULER}._drain_deferred_frees"), "all_blocks_return"
    ),
    "the end of a request is no work": Mistake(
        line(f"{SCHEDULER}.has_finished_requests", "if self.finished_req_ids:", "if False:"),
        "workers_forget_ended_requests",
    ),
    "the end of a load is not heard": Mistake(
        line(
            f"{SCHEDULER}._update_from_kv_xfer_finished",
            "self.finished_recving_kv_req_ids.add(req_id)",
            "pass",
        ),
        "accepted_request_is_answered",
    ),
    "a pause aborts twice": Mistake(
        around(f"{PROC}._send_abort_outputs", _twice), "request_ends_once"
    ),
    "tokens that come late, in a pause, are lost": Mistake(
        around(f"{SCHEDULER}.update_from_output", _lost_in_a_pause), "answer_has_its_tokens"
    ),
    "the model's end of an answer is not heard": Mistake(
        around("vllm.v1.core.sched.scheduler:check_stop", deaf), "answer_has_its_tokens"
    ),
    "an answer that repeats itself goes on": Mistake(
        instead("vllm.v1.core.sched.utils:check_sequence_repetition", lambda *_: False),
        "answer_has_its_tokens",
    ),
    "the rest of a step follows the end of an answer": Mistake(
        line(f"{SCHEDULER}._update_request_with_output", "del new_token_ids[num_new:]", "pass"),
        "answer_has_its_tokens",
        Shown({**REASONS, "drafts": 2}),
    ),
    "rejected drafts stay computed": Mistake(
        line(
            f"{SCHEDULER}.update_from_output",
            "request.num_computed_tokens -= num_rejected",
            "pass",
        ),
        "accepted_request_is_answered",
        Shown({**REASONS, "drafts": 2}),
    ),
    "a request that gives way to an urgent one goes on": Mistake(
        line(f"{SCHEDULER}.schedule", "del self.running[victim_index]", "pass"),
        "engine_survives",
        Shown({"by_priority": True}),
    ),
    "a pause is complete at once": Mistake(
        line(f"{PROC}._pause_complete", "not self.has_work()", "True"), "pause_computes_nothing"
    ),
    "an engine goes on with a part of its memory (vllm#44483)": Mistake(
        line(f"{CORE}.wake_up", "not self.model_executor.is_sleeping", "True"),
        "pause_computes_nothing",
        Shown(first=53),
    ),
    "the front does not take the fitted length (vllm#39102)": Mistake(
        line(
            f"{CLIENT}._apply_ready_response",
            "response.max_model_len",
            "vllm_config.model_config.max_model_len",
        ),
        "front_knows_its_engine",
        Shown(first=31),
    ),
    "the front does not take the tokens of a block (vllm#42967)": Mistake(
        line(
            f"{CLIENT}._apply_ready_response", "= response.block_size", "= cache_config.block_size"
        ),
        "front_knows_its_engine",
    ),
    "an engine that is told no budget of scheduled tokens has none (vllm#44207)": Mistake(
        line(
            f"{SCHEDULER}.__init__",
            "if self.scheduler_config.max_num_scheduled_tokens is not None",
            "if True",
        ),
        "engine_survives",
    ),
    "the slots of drafts are not taken from the budget (vllm#51725)": Mistake(
        line(
            f"{SCHEDULER}.schedule",
            "input_budget -= num_new_tokens + draft_slots\n        req_index",
            "input_budget -= num_new_tokens\n        req_index",
        ),
        "step_fits_its_budget",
        Shown(first=67),
    ),
    "the front of two engines counts the blocks of one": Mistake(
        line(
            f"{CLIENT}._apply_ready_response",
            "num_gpu_blocks += response.num_gpu_blocks",
            "num_gpu_blocks = response.num_gpu_blocks",
        ),
        "front_knows_its_engine",
    ),
    "tokens that were loaded count as computed (vllm#43346)": Mistake(
        line(f"{METRICS}.record", "prompt_token_stats.computed", "prompt_token_stats.total"),
        "metrics_add_up",
    ),
    "the tokens of an answer are not exported": Mistake(
        line(
            f"{METRICS}.record",
            "iteration_stats.num_generation_tokens\n    )\n    self.histogram",
            "0\n    )\n    self.histogram",
        ),
        "metrics_add_up",
    ),
    "an idle engine shows what it was asked last": Mistake(
        line(f"{METRICS}.record", "scheduler_stats.num_running_reqs\n", "1\n"), "metrics_add_up"
    ),
    "a pause that comes to its end is not reported": Mistake(
        nothing(f"{PROC}._notify_idle_state_callbacks"), "call_is_answered_once"
    ),
    "an engine that is to end waits for work": Mistake(
        line(f"{PROC}._handle_shutdown", "if not self.has_work():", "if False:"),
        "stopped_engine_ends",
    ),
    "a mask does not wait for the tokens in flight": Mistake(
        around(f"{ASYNC}._update_after_schedule", _impatient),
        "mask_knows_every_token",
        Shown({**REASONS, "overlaps": True}),
    ),
    "statistics of the scheduler's side wait for the workers' (vllm#43877)": Mistake(
        line(
            f"{SCHEDULER}.update_from_output",
            "scheduler_kv_connector_stats is not None",
            "scheduler_kv_connector_stats is not None and kv_connector_stats is not None",
        ),
        "statistics_reach_their_reader",
    ),
    "statistics of a step without output are dropped (vllm#48668)": Mistake(
        line(f"{FRONT}.step", "self.logger_manager is not None", "outputs.outputs"),
        "statistics_reach_their_reader",
    ),
    "a grammar does not go on in the step in which reasoning ends (vllm#44993)": Mistake(
        line(
            f"{MANAGER}.accept_tokens",
            "return grammar.accept_tokens",
            "return grammar_start > 0 or grammar.accept_tokens",
        ),
        "mask_knows_every_token",
        Shown(REASONS, 130),
    ),
    "no mask is made in the step in which reasoning ends": Mistake(
        line(
            f"{MANAGER}._get_constraint_bounds",
            "return ConstraintBounds(i + 1, i + 1)",
            "return ConstraintBounds(num_spec_tokens + 1, num_spec_tokens + 1)",
        ),
        "token_has_its_mask",
        Shown(REASONS, 55),
    ),
    "the end of reasoning is not seen with drafts": Mistake(
        line(f"{MANAGER}.accept_tokens", "structured_req.reasoning_ended = True", "pass"),
        "token_has_its_mask",
        Shown({**REASONS, "drafts": 2}),
    ),
    "a grammar that fails ends the engine (vllm#47312)": Mistake(
        line(
            "vllm.v1.structured_output.request:StructuredOutputRequest._check_grammar_completion",
            "except Exception as e:",
            "except TimeoutError as e:",
        ),
        "engine_survives",
        Shown(first=50),
    ),
    "a prompt of a model that pools leaves room for an answer": Mistake(
        always(f"{SCHEDULER}.num_sampled_tokens_per_step", 1),
        "admitted_length_is_served",
        Shown({**COUNTED, "pools": True}),
    ),
    "a request that has its vector goes on": Mistake(
        line(
            f"{SCHEDULER}.update_from_output", "elif request.pooling_params and", "elif False and"
        ),
        "accepted_request_is_answered",
        Shown({"pools": True}),
    ),
    "the vector of a request is lost": Mistake(
        line(
            f"{SCHEDULER}.update_from_output", "pooling_output=pooler_output", "pooling_output=None"
        ),
        "engine_survives",
        Shown({"pools": True}),
    ),
    "what is evicted is told to nobody who asked": Mistake(
        line(
            "vllm.v1.core.block_pool:BlockPool._emit_block_removed_events",
            "if not self.enable_kv_cache_events:",
            "if False:",
        ),
        "idle_engine_has_published",
        Shown({"without_events": True}),
    ),
    "a reset needs statistics": Mistake(
        line(
            "vllm.v1.core.kv_cache_manager:KVCacheManager.reset_prefix_cache",
            "if self.log_stats:",
            "if True:",
        ),
        "call_does_not_fail",
        Shown({"without_statistics": True}),
    ),
    "an abort of a request that has ended": Mistake(
        line(f"{SCHEDULER}.finish_requests", "self.requests.get(req_id)", "self.requests[req_id]"),
        "engine_survives",
    ),
}
