"""A limit on the tokens that one request gets in a step beside other requests."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature, Limit, Refusal

THRESHOLDS = (2, 3, 4, 8)
"""Tokens, in a random cluster."""


def _sample_fits(engine: EngineConfig) -> Refusal | None:
    if 0 < engine.long_prefill_tokens <= engine.drafts:
        return Refusal(
            f"Engine {engine.name} gives a request {engine.long_prefill_tokens} tokens in a step, "
            f"and a sample with its {engine.drafts} drafts needs more",
            f"long_prefill_tokens of at least {engine.drafts + 1}, or 0",
        )
    return None


FEATURE = Feature(
    id="long_prefill",
    section="engine",
    name="a limit on long prefills",
    words="a limit on the tokens of one request in a step, beside others",
    options="`long_prefill_tokens`",
    of=EngineConfig,
    used=lambda engine: engine.long_prefill_tokens > 0,
    limits=(
        Limit(of=EngineConfig, check=_sample_fits, words="a limit below a sample with its drafts"),
    ),
    draw=lambda settings: settings.on_engines(long_prefill_tokens=settings.choose(THRESHOLDS)),
    chance=0.15,
)
