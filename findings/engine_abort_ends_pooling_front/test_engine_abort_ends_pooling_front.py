"""vLLM 0.32.0, a pooling model (embeddings, scores), one engine. vllm#25734 mended the same for the
aborts of the front.

When the engine core itself ends a pooling request (`pause_generation(mode="abort")`, `sleep`), it
sends an output without `pooling_output`. `OutputProcessor.process_outputs` takes that for an output
of a generating request, and asserts that the request has a detokenizer. So the task that reads the
outputs of all requests ends.
"""

import asyncio
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.request import Request

from findings.helpers.utils import create_scheduler, create_vllm_config

FAILS_WITH = "ended by the abort of another"


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooling request that ends without a vector gets an empty one, as by an abort of the
    front."""
    as_released = OutputProcessor.process_outputs

    def process(self: Any, engine_core_outputs: list[Any], *rest: Any, **more: Any) -> Any:
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            pools = state is not None and state.detokenizer is None
            if pools and output.finish_reason is not None and output.pooling_output is None:
                output.pooling_output = torch.empty(0)
        return as_released(self, engine_core_outputs, *rest, **more)

    monkeypatch.setattr(OutputProcessor, "process_outputs", process)


def pooling_request(name: str) -> EngineCoreRequest:
    params = PoolingParams(task="embed")
    params.output_kind = RequestOutputKind.FINAL_ONLY
    request = EngineCoreRequest(
        request_id=name,
        prompt_token_ids=[1, 2, 3],
        mm_features=None,
        sampling_params=None,
        pooling_params=params,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    request.external_req_id = name
    return request


def abort_outputs(request: EngineCoreRequest) -> EngineCoreOutputs:
    """What an engine core sends when it is paused while it has this request."""
    core = EngineCoreProc.__new__(EngineCoreProc)
    core.scheduler = create_scheduler(create_vllm_config())
    core.scheduler.add_request(Request.from_engine_core_request(request, None))
    core.output_queue = Queue()
    core.batch_queue, core.engines_running, core._idle_state_callbacks = None, False, []
    core.model_executor = SimpleNamespace(collective_rpc=lambda _: None)
    core.pause_scheduler(mode="abort", clear_cache=False)
    return core.output_queue.get_nowait()[1]


def vector(request: EngineCoreRequest) -> EngineCoreOutputs:
    """What an engine core sends when it has computed this request."""
    output = EngineCoreOutput(
        request.request_id, [], finish_reason=FinishReason.STOP, pooling_output=torch.ones(4)
    )
    return EngineCoreOutputs(outputs=[output])


async def front_after(outputs: EngineCoreOutputs, aborted: Any, other: Any) -> tuple[bool, Any]:
    """Whether the front still reads outputs after these, and what the other request gets."""
    sent: asyncio.Queue[EngineCoreOutputs] = asyncio.Queue()
    front = AsyncLLM.__new__(AsyncLLM)
    front.engine_core = SimpleNamespace(get_output_async=sent.get, shutdown=lambda **_: None)
    front.output_processor = OutputProcessor(None, log_stats=False)
    front.log_stats, front.logger_manager, front.output_handler = False, None, None
    front.renderer = SimpleNamespace(mm_processor_cache=None, shutdown=lambda: None)
    queues = {
        each.request_id: RequestOutputCollector(RequestOutputKind.FINAL_ONLY, each.request_id)
        for each in (aborted, other)
    }
    for each in (aborted, other):
        front.output_processor.add_request(each, None, queue=queues[each.request_id])
    front._run_output_handler()
    for each in (outputs, vector(other)):
        sent.put_nowait(each)
        await asyncio.sleep(0.01)
    got = queues[other.request_id].output
    alive = front.is_running
    front.output_handler.cancel()
    return alive, got


def test_a_request_is_answered_after_the_abort_of_another() -> None:
    aborted, other = pooling_request("aborted"), pooling_request("other")
    alive, got = asyncio.run(front_after(abort_outputs(aborted), aborted, other))
    assert alive, f"The front is ended by the abort of another request: its client gets {got!r}"
    assert got.finished
    assert len(got.outputs.data) == 4
