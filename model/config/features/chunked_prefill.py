"""Chunked prefill: a step has a budget of tokens."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="chunked_prefill",
    section="engine",
    name="chunked prefill",
    words="chunks below, at and above a block",
    options="`chunk_tokens`",
    of=EngineConfig,
    used=lambda _: True,
)
