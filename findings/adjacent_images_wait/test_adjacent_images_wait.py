"""vLLM 0.32.0 and 0.33.0, images beside an EAGLE or MTP drafter: a request waits for ever.

A prompt has two images with at most one token between them. Each fits into the encoder cache, both
together do not. The scheduler stops one token before the second image and one more, for the
drafter; so the last token of the first image is not computed, its output is kept, and there is
never room for the second.

Here the scheduler is the real one, and the worker computes nothing.

Run: pytest --noconftest test_adjacent_images_wait.py
On 0.32.0 and 0.33.0 [released] fails and [patched] passes.
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
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "tokens of the prompt are computed, and no step goes on"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 64  # 0 is the null block
IMAGE_TOKENS = 100
CACHE_TOKENS = 150  # room for one image, not for two


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may end where the next image begins, and an image whose tokens are all computed is
    free. The worker does without an image that only begins after the step (vllm#46315)."""
    schedule: Any = Scheduler._try_schedule_encoder_inputs
    free: Any = Scheduler._free_encoder_inputs

    def to_the_image(
        self: Any,
        request: Request,
        computed: int,
        new: int,
        budget: int,
        shift_computed_tokens: int = 0,
    ) -> Any:
        ahead = shift_computed_tokens
        result = schedule(self, request, computed, new, budget, shift_computed_tokens=ahead)
        begins = [feature.mm_position.offset for feature in request.mm_features]
        if result[1] > 0 or ahead == 0 or computed + ahead not in begins:
            return result
        return schedule(self, request, computed, ahead, budget, shift_computed_tokens=0)

    def when_computed(self: Any, request: Request) -> None:
        ahead = self.num_prefill_lookahead
        self.num_prefill_lookahead = 0
        free(self, request)
        self.num_prefill_lookahead = ahead

    monkeypatch.setattr(Scheduler, "_try_schedule_encoder_inputs", to_the_image)
    monkeypatch.setattr(Scheduler, "_free_encoder_inputs", when_computed)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    """The scheduler of an engine with full attention and an EAGLE drafter."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(model))
    model_config = ModelConfig(
        model=str(tmp_path), skip_tokenizer_init=True, dtype="float32", max_model_len=1024
    )
    vllm_config = VllmConfig(
        model_config=model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=1024,
            max_model_len=1024,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        speculative_config=SpeculativeConfig(
            method="eagle",
            model=str(tmp_path),
            num_speculative_tokens=2,
            target_model_config=model_config,
            target_parallel_config=ParallelConfig(),
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    full = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    made = Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["full"], full)]
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )
    # vLLM computes this room from the model; this model has no images.
    made.encoder_cache_manager = EncoderCacheManager(cache_size=CACHE_TOKENS)
    made.max_num_encoder_input_tokens = CACHE_TOKENS
    return made


def make_request(gap: int) -> Request:
    """A prompt with two images, and so many tokens between them."""
    init_none_hash(sha256)
    images = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=name,
            mm_position=PlaceholderRange(offset=offset, length=IMAGE_TOKENS),
        )
        for name, offset in (("one", 10), ("two", 10 + IMAGE_TOKENS + gap))
    ]
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(10 + 2 * IMAGE_TOKENS + gap + 10)),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        mm_features=images,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def take_step(scheduler: Scheduler) -> int:
    """A step. Returns the number of its tokens."""
    step = scheduler.schedule()
    names = list(step.num_scheduled_tokens)
    whole = {n for n in names if not scheduler.requests[n].is_prefill_chunk}
    ended = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[7] if name in whole else [] for name in names],
    )
    scheduler.update_from_output(step, ended)
    tokens: int = step.total_num_scheduled_tokens
    return tokens


@pytest.mark.parametrize("gap", [0, 1])
def test_a_request_with_two_images_ends(scheduler: Scheduler, gap: int) -> None:
    request = make_request(gap)
    scheduler.add_request(request)
    while scheduler.requests:
        tokens = take_step(scheduler)
        assert tokens or not scheduler.requests, (
            f"{request.num_computed_tokens} of {request.num_prompt_tokens} "
            "tokens of the prompt are computed, and no step goes on"
        )
