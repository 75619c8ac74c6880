"""vLLM 0.32.0, async scheduling, streaming input (resumable requests), one engine.

A session is preempted while the step that samples the last token of its answer is in flight. The
token arrives late and ends the answer. `_handle_stopped_request` puts the session into the waiting
queue, and `update_from_output` then removes all requests that ended while they were preempted from
this queue. The session is in no queue. When its next part arrives, `_update_request_as_session`
keeps the computed tokens; a preempted request has none, so the earlier text is lost too.

Run: pytest --noconftest test_late_end_loses_session.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "are never computed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 3  # 0 is the null block
MAX_MODEL_LEN = 3 * BLOCK_SIZE  # the check at start requires a pool of this many tokens
OTHER = range(2 * BLOCK_SIZE - 1)  # prompt of the other request, which needs its third block soon
FIRST, NEXT = range(500, 508), range(600, 604)  # two parts of the session
ANSWER = 2  # tokens
TOKEN = 7
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose answer ends late stays in the queue and keeps all tokens except the last."""
    stopped, updated = Scheduler._handle_stopped_request, Scheduler.update_from_output
    continued = Scheduler._update_request_as_session
    late: list[Request] = []

    def handle(self: Any, request: Request) -> bool:
        preempted = request.num_computed_tokens == 0
        finished = bool(stopped(self, request))
        if preempted and not finished:
            late.append(request)
        return finished

    def update(self: Any, *args: Any, **named: Any) -> Any:
        result = updated(self, *args, **named)
        while late:
            request = late.pop()
            if request not in (*self.waiting, *self.kv_holding_waiting):
                self._enqueue_waiting_request(request)
        return result

    def go_on(self: Any, session: Request, *args: Any) -> None:
        computed = session.num_computed_tokens
        session.num_computed_tokens = session.num_tokens - 1
        continued(self, session, *args)
        session.num_computed_tokens = computed

    monkeypatch.setattr(Scheduler, "_handle_stopped_request", handle)
    monkeypatch.setattr(Scheduler, "update_from_output", update)
    monkeypatch.setattr(Scheduler, "_update_request_as_session", go_on)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(tmp_path),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_model_len=MAX_MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    # The platform sets this; the CPU platform sets it to False.
    vllm_config.scheduler_config.async_scheduling = True
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    return AsyncScheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, tokens: range, max_tokens: int, resumable: bool = False) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=resumable,
    )


def take_output(scheduler: Scheduler, output: SchedulerOutput) -> None:
    """The output of a step arrives: one token for each request, because no prompt is split."""
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[TOKEN] for _ in names],
        ),
    )


def test_an_answer_that_ends_after_a_preemption(scheduler: Scheduler) -> None:
    scheduler.add_request(make_request("other", OTHER, 4))
    session = make_request("session", FIRST, ANSWER, resumable=True)
    scheduler.add_request(session)
    prompts, last = scheduler.schedule(), scheduler.schedule()
    take_output(scheduler, prompts)
    behind = scheduler.schedule()
    assert session.num_preemptions == 1
    take_output(scheduler, last)
    assert list(session.output_token_ids) == [TOKEN] * ANSWER

    scheduler.add_request(make_request("session", NEXT, 1, resumable=True))
    text = [*FIRST, *[TOKEN] * (ANSWER - 1), *NEXT]
    take_output(scheduler, behind)
    computed = 0
    for _ in range(STEPS):
        step = scheduler.schedule()
        computed += step.num_scheduled_tokens.get("session", 0)
        if step.num_scheduled_tokens:
            take_output(scheduler, step)
    assert not scheduler.running
    assert computed == len(text), (
        f"{len(text) - computed} of {len(text)} tokens of a session that goes on are never "
        f"computed; {sum(map(len, (scheduler.waiting, scheduler.kv_holding_waiting)))} "
        "waiting queues have it"
    )
    assert session.prompt_token_ids == text
    assert list(session.all_token_ids)[: len(text)] == text
