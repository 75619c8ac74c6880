"""vLLM 0.32.0 and 0.33.0, images beside an EAGLE or MTP drafter: a request waits for ever.

A prompt has two images with at most one token between them. Each fits into the encoder cache, both
together do not. The scheduler stops one token before the second image and one more, for the
drafter; so the last token of the first image is not computed, its output is kept, and there is
never room for the second.

Here the scheduler is the real one, and the worker computes nothing.
"""

import pytest
from vllm.config import SpeculativeConfig
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "tokens of the prompt are computed, and no step goes on"

NUM_BLOCKS = 1 + 64  # 0 is the null block
IMAGE_TOKENS = 100
CACHE_TOKENS = 150  # room for one image, not for two


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with full attention and an EAGLE drafter."""
    config = create_vllm_config(max_num_batched_tokens=1024, max_model_len=1024)
    config.kv_transfer_config = None
    config.speculative_config = SpeculativeConfig(method="ngram", num_speculative_tokens=2)
    config.speculative_config.method = "eagle"  # without a drafter's weights
    scheduler = create_scheduler(config, NUM_BLOCKS)
    # vLLM computes this room from the model; this model has no images.
    scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=CACHE_TOKENS)
    scheduler.max_num_encoder_input_tokens = CACHE_TOKENS
    return scheduler


@pytest.mark.parametrize("gap", [0, 1])
def test_a_request_with_two_images_ends(gap: int) -> None:
    """A prompt has two images, and so many tokens between them."""
    scheduler = make_scheduler()
    request = create_request(1, 10 + 2 * IMAGE_TOKENS + gap + 10, max_tokens=1)
    request.mm_features = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=name,
            mm_position=PlaceholderRange(offset=offset, length=IMAGE_TOKENS),
        )
        for name, offset in (("one", 10), ("two", 10 + IMAGE_TOKENS + gap))
    ]
    scheduler.add_request(request)
    while scheduler.requests:
        step = scheduler.schedule()
        ran = create_model_runner_output([request])
        ran.sampled_token_ids = [[] if request.is_prefill_chunk else [7]]
        scheduler.update_from_output(step, ran)
        assert step.total_num_scheduled_tokens or not scheduler.requests, (
            f"{request.num_computed_tokens} of {request.num_prompt_tokens} "
            "tokens of the prompt are computed, and no step goes on"
        )
