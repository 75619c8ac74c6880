"""Makes the outputs of steps as a model runner does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.outputs import ModelRunnerOutput

from kvproof.live.batch import ComputedPart
from kvproof.model.state import SAMPLED, Flight

SAMPLED_ID = ord(SAMPLED)

END_ID = SAMPLED_ID + 2
"""The token with which a model ends an answer. No prompt has it."""

VECTOR_FLOATS = 64
"""The length of the vectors of a model that pools. vLLM sends vectors of this length in frames of
their own."""


def sampled(
    shares: Iterable[Flight | ComputedPart],
    accepted: Mapping[str, int],
    ends: Mapping[str, int] | None = None,
    **more: Any,
) -> ModelRunnerOutput:
    """The output of a step with these parts: a sampled token and the accepted drafts of each
    request whose part reaches the end of its tokens. Where the answer of a request `ends` in so
    many tokens, its model says so. `more` has further fields, under vLLM's names."""
    parts, left = tuple(shares), ends or {}

    def tokens(name: str) -> list[int]:
        made = [SAMPLED_ID] * (1 + accepted.get(name, 0))
        return [END_ID if n == left.get(name) else each for n, each in enumerate(made, 1)]

    return ModelRunnerOutput(
        req_ids=[share.request for share in parts],
        req_id_to_index={share.request: i for i, share in enumerate(parts)},
        sampled_token_ids=[tokens(share.request) if share.samples else [] for share in parts],
        **more,
    )


def pooled(parts: Sequence[ComputedPart], **more: Any) -> ModelRunnerOutput:
    """The output of a step of a model that pools: a vector of each request whose part reaches the
    end of its prompt. `more` has further fields, under vLLM's names."""
    vectors = [torch.zeros(VECTOR_FLOATS) if each.samples else None for each in parts]
    made = sampled(parts, {}, pooler_output=vectors)
    return replace(made, sampled_token_ids=[[] for _ in parts], **more)


def encoded(output: Any, **more: Any) -> ModelRunnerOutput:
    """The output of a step of an engine that only encodes images, as vLLM makes it. `more` has
    further fields, under vLLM's names."""
    from vllm.v1.outputs import make_empty_encoder_model_runner_output

    return replace(make_empty_encoder_model_runner_output(output), **more)


def drafted(names: Sequence[str], drafts: int, token: int = SAMPLED_ID) -> Any:
    """The tokens that a drafter predicts after a step for these requests, all equal, as vLLM's
    DraftTokenIds."""
    from vllm.v1.outputs import DraftTokenIds

    return DraftTokenIds(list(names), [[token] * drafts for _ in names])
