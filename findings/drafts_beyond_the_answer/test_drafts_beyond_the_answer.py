"""vLLM 0.32.0, streaming input (resumable requests), speculative decoding, one engine. vllm#44526.

A session's answer ends at `max_tokens` in the middle of accepted drafts. The drafts after the end
are cut off but stay counted in `num_computed_tokens`, from which the session continues. As many
tokens of the next part count as computed and are never computed. If the part is not longer than
that, the next step fails an assertion.

Run: pytest --noconftest test_drafts_beyond_the_answer.py
On 0.32.0 [released] fails and [patched] passes. 0.33.0 does not count them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "of the next part count as computed and never were"

BLOCK_SIZE = 16
NUM_BLOCKS = 16
FIRST = 30  # tokens of the first part
NEXT = 5
ANSWER = 2  # max_tokens of each part
DRAFTS = [1, 2, 3]


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that are cut off at the end of an answer no longer count as computed."""
    released = Scheduler._update_request_with_output

    def update(
        self: Any, request: Request, tokens: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        given = len(tokens)
        kept, stopped = released(self, request, tokens, is_stale=is_stale)
        request.num_computed_tokens -= 0 if is_stale else given - len(kept)
        return kept, stopped

    monkeypatch.setattr(Scheduler, "_update_request_with_output", update)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    model_config = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=128
    )
    vllm_config = VllmConfig(
        model_config=model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=2 * FIRST,
            max_model_len=128,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
        speculative_config=SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=len(DRAFTS),
            prompt_lookup_max=3,
            prompt_lookup_min=1,
            target_model_config=model_config,
            target_parallel_config=ParallelConfig(),
        ),
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


def make_part(tokens: range) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id="session",
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=ANSWER, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=True,
    )


def step(scheduler: Scheduler, sampled: list[int]) -> SchedulerOutput:
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    result = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[list(sampled) for _ in names],
    )
    scheduler.update_from_output(output, result)
    return output


def test_all_of_the_next_part_is_computed(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.add_request(make_part(range(100, 100 + FIRST)))
    step(scheduler, [7])
    scheduler.update_draft_token_ids(DraftTokenIds(["session"], [DRAFTS]))
    verified = step(
        scheduler, [*DRAFTS, 8]
    )  # all drafts are accepted; one of the four tokens ends the answer
    assert verified.scheduled_spec_decode_tokens == {"session": DRAFTS}

    session = scheduler.requests["session"]
    scheduler.add_request(make_part(range(500, 500 + NEXT)))
    before = session.num_tokens - NEXT
    assert session.num_computed_tokens <= before, (
        f"{session.num_computed_tokens} of {session.num_tokens} tokens are computed: "
        f"{session.num_computed_tokens - before} {FAILS_WITH}"
    )
    assert step(scheduler, [9]).num_scheduled_tokens["session"] >= NEXT
