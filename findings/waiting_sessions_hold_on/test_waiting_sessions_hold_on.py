"""vLLM 0.32.0, streaming input (resumable requests), one engine. vllm#49439.

A session keeps its blocks while it waits for its user. Two sessions have filled the pool, and each
receives a part that needs one block more. vLLM preempts only running requests, and none runs. Every
further step schedules nothing, although either session would fit if the other one gave up its
blocks.

Run: pytest --noconftest test_waiting_sessions_hold_on.py
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
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "and no step will ever schedule anything"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 6  # 0 is the null block
MODEL_LEN = 6 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve
FIRST = 3 * BLOCK_SIZE  # tokens of the first part of a session: three blocks
NEXT = BLOCK_SIZE
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that schedules nothing while no request runs takes the blocks of a waiting session."""
    released = Scheduler.schedule

    def schedule(self: Any, *rest: Any, **named: Any) -> SchedulerOutput:
        output = released(self, *rest, **named)
        waiting = [r for r in self.kv_holding_waiting if r.status == RequestStatus.WAITING]
        if not self.running and len(waiting) > 1:
            self.kv_holding_waiting.remove_request(waiting[-1])
            self.kv_cache_manager.free(waiting[-1])
            waiting[-1].num_computed_tokens = 0
            waiting[-1].status = RequestStatus.PREEMPTED
            self.waiting.prepend_request(waiting[-1])
        return output

    monkeypatch.setattr(Scheduler, "schedule", schedule)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=MODEL_LEN
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=2 * FIRST,
            max_model_len=MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer0"], spec)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_part(name: str, tokens: range) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=True,
    )


def step(scheduler: Scheduler) -> SchedulerOutput:
    """One step: schedule, sample a token for each request with a computed prompt, update."""
    output = scheduler.schedule()
    requests = scheduler.requests
    names = list(output.num_scheduled_tokens)
    through = [requests[n].num_computed_tokens >= requests[n].num_tokens for n in names]
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] if done else [] for done in through],
    )
    scheduler.update_from_output(output, sampled)
    return output


def test_sessions_that_wait_are_served_some_time(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    for name, start in (("one", 0), ("two", 1000)):
        scheduler.add_request(make_part(name, range(start, start + FIRST)))
    assert step(scheduler).num_scheduled_tokens == {"one": FIRST, "two": FIRST}
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == 0

    for name, start in (("one", 500), ("two", 1500)):
        scheduler.add_request(make_part(name, range(start, start + NEXT)))
    served = {name for _ in range(STEPS) for name in step(scheduler).num_scheduled_tokens}
    assert served, (
        f"Two sessions of {FIRST // BLOCK_SIZE} blocks each wait for one block more, of "
        f"{NUM_BLOCKS - 1} in all; none runs, and no step will ever schedule anything"
    )
