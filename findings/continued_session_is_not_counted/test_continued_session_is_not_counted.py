"""vLLM 0.32.0, streaming input (resumable requests), one engine with LoRA and Model Runner V2.

A paused session counts against `max_num_seqs`, because its model runner keeps a slot for it. Once
its next part has come it is not counted any more, and keeps the slot. If it cannot be scheduled in
this step, another request is admitted, and the runner needs a slot more than it has. Here a LoRA
adapter makes it wait; with an asynchronous KV load, a loaded request that stands before it does.

Run: pytest --noconftest test_continued_session_is_not_counted.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoRAConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "the model runner needs"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 16  # 0 is the null block
MODEL_LEN = 6 * BLOCK_SIZE
SLOTS = 2  # max_num_seqs


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next part of a session reports that its slot is free: the part comes as a new request."""
    released = Scheduler._update_request_as_session

    def update(self: Any, session: Request, part: Any) -> None:
        released(self, session, part)
        self.reset_preempted_req_ids.add(session.request_id)

    monkeypatch.setattr(Scheduler, "_update_request_as_session", update)


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
            max_num_seqs=SLOTS,
            max_num_batched_tokens=MODEL_LEN,
            max_model_len=MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.lora_config = LoRAConfig(max_loras=1)
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


def make_request(name: str, adapter: int, answer: int, resumable: bool = False) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(BLOCK_SIZE)),
        sampling_params=SamplingParams(max_tokens=answer, ignore_eos=True),
        pooling_params=None,
        lora_request=LoRARequest(f"adapter{adapter}", adapter, f"/{adapter}") if adapter else None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=resumable,
    )


def step(scheduler: Scheduler, slots: set[str]) -> None:
    """One step. `slots` are the requests in slots, as Model Runner V2 keeps them."""
    output: SchedulerOutput = scheduler.schedule()
    slots.difference_update(output.finished_req_ids, output.preempted_req_ids or ())
    slots.update(output.num_scheduled_tokens)
    names = list(output.num_scheduled_tokens)
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
    )
    scheduler.update_from_output(output, sampled)


def test_the_model_runner_has_a_slot_for_each_request(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    slots: set[str] = set()
    scheduler.add_request(make_request("session", 1, answer=1, resumable=True))
    step(scheduler, slots)
    scheduler.add_request(make_request("other", 2, answer=20))
    step(scheduler, slots)
    scheduler.add_request(make_request("third", 0, answer=20))
    step(scheduler, slots)
    assert slots == {"session", "other"}  # the paused session is counted

    scheduler.add_request(make_request("session", 1, answer=1, resumable=True))
    step(scheduler, slots)
    assert len(slots) <= SLOTS, f"the model runner needs {len(slots)} slots, and has {SLOTS}"
