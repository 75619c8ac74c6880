"""vLLM 0.32.0, `disable_chunked_mm_input`: an image is cut all the same. Reported as
vllm#52306.

The scheduler ends a step before an image for which the step has too little room. It does so only
where the step has a token before the image. A step that begins at the first token of the image
computes a part of it.

Here the scheduler is the real one, and the worker computes nothing.
"""

from typing import Any

import pytest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "tokens of the image in one step"

NUM_BLOCKS = 1 + 64  # 0 is the null block
IMAGE_TOKENS = STEP_TOKENS = 128  # an image of this size is not refused


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose next token is in an image waits for a step that has room for the rest of
    it."""
    released = Scheduler._try_schedule_encoder_inputs

    def whole(
        self: Any, request: Request, start: int, new: int, budget: int, shift_computed_tokens: int
    ) -> tuple[Any, ...]:
        threshold = self.scheduler_config.long_prefill_token_threshold
        for feature in request.mm_features or ():
            first = feature.mm_position.offset
            end = first + feature.mm_position.length
            # While others are served, no step has more than this threshold for a request.
            waits = not 0 < threshold < end - start and not self.is_encoder_decoder
            if waits and first <= start and start + new < end:
                return [], 0, budget, [], []
        return tuple(released(self, request, start, new, budget, shift_computed_tokens))

    monkeypatch.setattr(Scheduler, "_try_schedule_encoder_inputs", whole)


def make_scheduler() -> Scheduler:
    """Make the scheduler of an engine with full attention that may not cut images."""
    config = create_vllm_config(max_num_batched_tokens=STEP_TOKENS, max_model_len=1024)
    config.kv_transfer_config = None
    config.scheduler_config.disable_chunked_mm_input = True
    scheduler = create_scheduler(config, NUM_BLOCKS)
    # vLLM computes this room from the model; this model has no images.
    scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=IMAGE_TOKENS)
    scheduler.max_num_encoder_input_tokens = IMAGE_TOKENS
    return scheduler


@pytest.mark.parametrize("before", [0, 40])
def test_an_image_is_computed_in_one_step(before: int) -> None:
    """A prompt has so many tokens before its image. Another request, which came first, takes 88
    tokens of the first step and one of each of the next two."""
    scheduler = make_scheduler()
    request = create_request(2, before + IMAGE_TOKENS + 10, max_tokens=1)
    request.mm_features = [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier="image",
            mm_position=PlaceholderRange(offset=before, length=IMAGE_TOKENS),
        )
    ]
    other = create_request(1, 88, max_tokens=3)
    scheduler.add_request(other)
    scheduler.add_request(request)
    while scheduler.requests:
        start = request.num_computed_tokens
        step = scheduler.schedule()
        served = [each for each in (other, request) if each.request_id in step.num_scheduled_tokens]
        end = start + step.num_scheduled_tokens.get(request.request_id, 0)
        inside = min(end, before + IMAGE_TOKENS) - max(start, before)
        assert inside <= 0 or inside == IMAGE_TOKENS, (
            f"{max(inside, 0)} of {IMAGE_TOKENS} tokens of the image in one step"
        )
        ran = create_model_runner_output(served)
        ran.sampled_token_ids = [[] if each.is_prefill_chunk else [7] for each in served]
        scheduler.update_from_output(step, ran)
