"""Mistakes of the loop of an engine, planted in real vLLM, and the check that finds each."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from tests.mistakes_of_steps import rewritten

Patch = pytest.MonkeyPatch
CORE = "vllm.v1.engine.core:EngineCore"
PROC = "vllm.v1.engine.core:EngineCoreProc"
MANAGER = "vllm.v1.structured_output:StructuredOutputManager"
CLIENT = "vllm.v1.engine.core_client:MPClient"
METRICS = "vllm.v1.metrics.loggers:PrometheusStatLogger"
FRONT = "vllm.v1.engine.llm_engine:LLMEngine"
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler:NixlPullConnectorScheduler"


def _line(place: str, method: str, old: str, new: str) -> Callable[[Patch], None]:
    """Another line in a method."""

    def plant(patch: Patch) -> None:
        module, name = place.split(":")
        kind = getattr(import_module(module), name)
        patch.setattr(kind, method, rewritten(getattr(kind, method), old, new))

    return plant


def _nothing(place: str, method: str) -> Callable[[Patch], None]:
    """A method that does nothing."""

    def plant(patch: Patch) -> None:
        module, name = place.split(":")
        patch.setattr(getattr(import_module(module), name), method, lambda *_, **__: None)

    return plant


def _twice(patch: Patch) -> None:
    from vllm.v1.engine.core import EngineCoreProc

    right = EngineCoreProc._send_abort_outputs

    def twice(self: Any, requests: Any) -> None:
        right(self, requests)
        right(self, requests)

    patch.setattr(EngineCoreProc, "_send_abort_outputs", twice)


def _lost_in_a_pause(patch: Patch) -> None:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler

    right = Scheduler.update_from_output

    def losing(self: Any, *given: Any) -> Any:
        outputs = right(self, *given)
        if self.pause_state != PauseState.UNPAUSED:
            for each in (one for some in outputs.values() for one in some.outputs):
                each.new_token_ids = []
        return outputs

    patch.setattr(Scheduler, "update_from_output", losing)


def _impatient(patch: Patch) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    right = AsyncScheduler._update_after_schedule

    def wrong(self: Any, output: Any) -> None:
        right(self, output)
        output.pending_structured_output_tokens = False

    patch.setattr(AsyncScheduler, "_update_after_schedule", wrong)


def _silent(patch: Patch) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    async def silent(*_: Any, **__: Any) -> None:
        """Nobody is notified."""

    patch.setattr(AsyncLLM, "notify_kv_transfer_request_rejected", silent)


MISTAKES: dict[str, tuple[Callable[[Patch], None], str]] = {
    "a request that waits is no work": (
        _line(SCHEDULER, "get_num_unfinished_requests", "num_waiting + num_running", "num_running"),
        "idle_engine_has_no_waiting_request",
    ),
    "a pause never ends for the queue": (
        _line(CORE, "resume_scheduler", "PauseState.UNPAUSED", "PauseState.PAUSED_NEW"),
        "idle_engine_has_no_waiting_request",
    ),
    "a step in flight is no work": (
        _line(PROC, "has_work", "or bool(self.batch_queue)", ""),
        "idle_engine_has_every_output",
    ),
    "a transfer is no work (vllm#43433)": (
        _line(
            SCHEDULER,
            "has_finished_requests",
            "return len(self.requests) > (num_running + num_waiting)",
            "return False",
        ),
        "idle_engine_awaits_no_transfer",
    ),
    "a load that never began is not reported (vllm#41269)": (
        _line(
            NIXL,
            "request_finished",
            "(request, [], (), False)",
            "None; del self._reqs_need_recv[request.request_id]",
        ),
        "ended_load_frees_its_prefill",
    ),
    "the front refuses a request and notifies nobody (vllm#41269)": (
        _silent,
        "ended_load_frees_its_prefill",
    ),
    "blocks that were to be freed later stay": (
        _nothing(SCHEDULER, "_drain_deferred_frees"),
        "all_blocks_return",
    ),
    "the end of a request is no work": (
        _line(SCHEDULER, "has_finished_requests", "if self.finished_req_ids:", "if False:"),
        "workers_forget_ended_requests",
    ),
    "the end of a load is not heard": (
        _line(
            SCHEDULER,
            "_update_from_kv_xfer_finished",
            "self.finished_recving_kv_req_ids.add(req_id)",
            "pass",
        ),
        "accepted_request_is_answered",
    ),
    "a pause aborts twice": (_twice, "request_ends_once"),
    "tokens that come late, in a pause, are lost": (_lost_in_a_pause, "answer_has_its_tokens"),
    "a pause is complete at once": (
        _line(PROC, "_pause_complete", "not self.has_work()", "True"),
        "pause_computes_nothing",
    ),
    "an engine goes on with a part of its memory (vllm#44483)": (
        _line(CORE, "wake_up", "not self.model_executor.is_sleeping", "True"),
        "pause_computes_nothing",
    ),
    "the front does not take the fitted length (vllm#39102)": (
        _line(
            CLIENT,
            "_apply_ready_response",
            "response.max_model_len",
            "vllm_config.model_config.max_model_len",
        ),
        "front_knows_its_engine",
    ),
    "the front does not take the tokens of a block (vllm#42967)": (
        _line(
            CLIENT, "_apply_ready_response", "= response.block_size", "= cache_config.block_size"
        ),
        "front_knows_its_engine",
    ),
    "tokens that were loaded count as computed (vllm#43346)": (
        _line(METRICS, "record", "prompt_token_stats.computed", "prompt_token_stats.total"),
        "metrics_add_up",
    ),
    "the tokens of an answer are not exported": (
        _line(
            METRICS,
            "record",
            "iteration_stats.num_generation_tokens\n    )\n    self.histogram",
            "0\n    )\n    self.histogram",
        ),
        "metrics_add_up",
    ),
    "an idle engine shows what it was asked last": (
        _line(METRICS, "record", "scheduler_stats.num_running_reqs\n", "1\n"),
        "metrics_add_up",
    ),
    "a pause that comes to its end is not reported": (
        _nothing(PROC, "_notify_idle_state_callbacks"),
        "call_is_answered_once",
    ),
    "an engine that is to end waits for work": (
        _line(PROC, "_handle_shutdown", "if not self.has_work():", "if False:"),
        "stopped_engine_ends",
    ),
    "a mask does not wait for the tokens in flight": (_impatient, "mask_knows_every_token"),
    "statistics of the scheduler's side wait for the workers' (vllm#43877)": (
        _line(
            SCHEDULER,
            "update_from_output",
            "scheduler_kv_connector_stats is not None",
            "scheduler_kv_connector_stats is not None and kv_connector_stats is not None",
        ),
        "statistics_reach_their_reader",
    ),
    "statistics of a step without output are dropped (vllm#48668)": (
        _line(FRONT, "step", "self.logger_manager is not None", "outputs.outputs"),
        "statistics_reach_their_reader",
    ),
    "a grammar does not go on in the step in which reasoning ends (vllm#44993)": (
        _line(
            MANAGER,
            "accept_tokens",
            "return grammar.accept_tokens",
            "return grammar_start > 0 or grammar.accept_tokens",
        ),
        "mask_knows_every_token",
    ),
    "no mask is made in the step in which reasoning ends": (
        _line(
            MANAGER,
            "_get_constraint_bounds",
            "return ConstraintBounds(i + 1, i + 1)",
            "return ConstraintBounds(num_spec_tokens + 1, num_spec_tokens + 1)",
        ),
        "token_has_its_mask",
    ),
    "the end of reasoning is not seen with drafts": (
        _line(MANAGER, "accept_tokens", "structured_req.reasoning_ended = True", "pass"),
        "token_has_its_mask",
    ),
    "a grammar that fails ends the engine (vllm#47312)": (
        _line(
            "vllm.v1.structured_output.request:StructuredOutputRequest",
            "_check_grammar_completion",
            "except Exception as e:",
            "except TimeoutError as e:",
        ),
        "engine_survives",
    ),
    "an abort of a request that has ended": (
        _line(SCHEDULER, "finish_requests", "self.requests.get(req_id)", "self.requests[req_id]"),
        "engine_survives",
    ),
}
"""By name: how it is planted, and the check."""
