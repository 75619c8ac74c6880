"""Mistakes of the loop of an engine, planted in real vLLM, and the check that finds each."""

from typing import Any

from tests.in_vllm import ASYNC, NIXL, SCHEDULER, Change, around, instead, line, nothing

CORE = "vllm.v1.engine.core:EngineCore"
PROC = "vllm.v1.engine.core:EngineCoreProc"
MANAGER = "vllm.v1.structured_output:StructuredOutputManager"
CLIENT = "vllm.v1.engine.core_client:MPClient"
METRICS = "vllm.v1.metrics.loggers:PrometheusStatLogger"
FRONT = "vllm.v1.engine.llm_engine:LLMEngine"
PULL = f"{NIXL}.pull_scheduler:NixlPullConnectorScheduler"


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


async def _silent(*_: Any, **__: Any) -> None:
    """Nobody is notified."""


MISTAKES: dict[str, tuple[Change, str]] = {
    "a request that waits is no work": (
        line(
            f"{SCHEDULER}.get_num_unfinished_requests", "num_waiting + num_running", "num_running"
        ),
        "idle_engine_has_no_waiting_request",
    ),
    "a pause never ends for the queue": (
        line(f"{CORE}.resume_scheduler", "PauseState.UNPAUSED", "PauseState.PAUSED_NEW"),
        "idle_engine_has_no_waiting_request",
    ),
    "no step publishes its events": (
        nothing("vllm.v1.core.block_pool:BlockPool.take_events"),
        "idle_engine_has_published",
    ),
    "a step in flight is no work": (
        line(f"{PROC}.has_work", "or bool(self.batch_queue)", ""),
        "idle_engine_has_every_output",
    ),
    "a transfer is no work (vllm#43433)": (
        line(
            f"{SCHEDULER}.has_finished_requests",
            "return len(self.requests) > (num_running + num_waiting)",
            "return False",
        ),
        "idle_engine_awaits_no_transfer",
    ),
    "a load that never began is not reported (vllm#41269)": (
        line(
            f"{PULL}.request_finished",
            "(request, [], (), False)",
            "None; del self._reqs_need_recv[request.request_id]",
        ),
        "ended_load_frees_its_prefill",
    ),
    "the front refuses a request and notifies nobody (vllm#41269)": (
        instead("vllm.v1.engine.async_llm:AsyncLLM.notify_kv_transfer_request_rejected", _silent),
        "ended_load_frees_its_prefill",
    ),
    "blocks that were to be freed later stay": (
        nothing(f"{SCHEDULER}._drain_deferred_frees"),
        "all_blocks_return",
    ),
    "the end of a request is no work": (
        line(f"{SCHEDULER}.has_finished_requests", "if self.finished_req_ids:", "if False:"),
        "workers_forget_ended_requests",
    ),
    "the end of a load is not heard": (
        line(
            f"{SCHEDULER}._update_from_kv_xfer_finished",
            "self.finished_recving_kv_req_ids.add(req_id)",
            "pass",
        ),
        "accepted_request_is_answered",
    ),
    "a pause aborts twice": (around(f"{PROC}._send_abort_outputs", _twice), "request_ends_once"),
    "tokens that come late, in a pause, are lost": (
        around(f"{SCHEDULER}.update_from_output", _lost_in_a_pause),
        "answer_has_its_tokens",
    ),
    "a pause is complete at once": (
        line(f"{PROC}._pause_complete", "not self.has_work()", "True"),
        "pause_computes_nothing",
    ),
    "an engine goes on with a part of its memory (vllm#44483)": (
        line(f"{CORE}.wake_up", "not self.model_executor.is_sleeping", "True"),
        "pause_computes_nothing",
    ),
    "the front does not take the fitted length (vllm#39102)": (
        line(
            f"{CLIENT}._apply_ready_response",
            "response.max_model_len",
            "vllm_config.model_config.max_model_len",
        ),
        "front_knows_its_engine",
    ),
    "the front does not take the tokens of a block (vllm#42967)": (
        line(
            f"{CLIENT}._apply_ready_response", "= response.block_size", "= cache_config.block_size"
        ),
        "front_knows_its_engine",
    ),
    "tokens that were loaded count as computed (vllm#43346)": (
        line(f"{METRICS}.record", "prompt_token_stats.computed", "prompt_token_stats.total"),
        "metrics_add_up",
    ),
    "the tokens of an answer are not exported": (
        line(
            f"{METRICS}.record",
            "iteration_stats.num_generation_tokens\n    )\n    self.histogram",
            "0\n    )\n    self.histogram",
        ),
        "metrics_add_up",
    ),
    "an idle engine shows what it was asked last": (
        line(f"{METRICS}.record", "scheduler_stats.num_running_reqs\n", "1\n"),
        "metrics_add_up",
    ),
    "a pause that comes to its end is not reported": (
        nothing(f"{PROC}._notify_idle_state_callbacks"),
        "call_is_answered_once",
    ),
    "an engine that is to end waits for work": (
        line(f"{PROC}._handle_shutdown", "if not self.has_work():", "if False:"),
        "stopped_engine_ends",
    ),
    "a mask does not wait for the tokens in flight": (
        around(f"{ASYNC}._update_after_schedule", _impatient),
        "mask_knows_every_token",
    ),
    "statistics of the scheduler's side wait for the workers' (vllm#43877)": (
        line(
            f"{SCHEDULER}.update_from_output",
            "scheduler_kv_connector_stats is not None",
            "scheduler_kv_connector_stats is not None and kv_connector_stats is not None",
        ),
        "statistics_reach_their_reader",
    ),
    "statistics of a step without output are dropped (vllm#48668)": (
        line(f"{FRONT}.step", "self.logger_manager is not None", "outputs.outputs"),
        "statistics_reach_their_reader",
    ),
    "a grammar does not go on in the step in which reasoning ends (vllm#44993)": (
        line(
            f"{MANAGER}.accept_tokens",
            "return grammar.accept_tokens",
            "return grammar_start > 0 or grammar.accept_tokens",
        ),
        "mask_knows_every_token",
    ),
    "no mask is made in the step in which reasoning ends": (
        line(
            f"{MANAGER}._get_constraint_bounds",
            "return ConstraintBounds(i + 1, i + 1)",
            "return ConstraintBounds(num_spec_tokens + 1, num_spec_tokens + 1)",
        ),
        "token_has_its_mask",
    ),
    "the end of reasoning is not seen with drafts": (
        line(f"{MANAGER}.accept_tokens", "structured_req.reasoning_ended = True", "pass"),
        "token_has_its_mask",
    ),
    "a grammar that fails ends the engine (vllm#47312)": (
        line(
            "vllm.v1.structured_output.request:StructuredOutputRequest._check_grammar_completion",
            "except Exception as e:",
            "except TimeoutError as e:",
        ),
        "engine_survives",
    ),
    "an abort of a request that has ended": (
        line(f"{SCHEDULER}.finish_requests", "self.requests.get(req_id)", "self.requests[req_id]"),
        "engine_survives",
    ),
}
"""By name: how it is planted, and the check."""
