"""Mamba: a block holds a state, and not KV per token."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="mamba",
    section="cache groups",
    name="Mamba",
    words="Mamba, states cached at block boundaries (`align`)",
    options="`kind` of a group",
    of=EngineConfig,
    used=lambda engine: engine.has_state,
    on="an aligned Mamba group",
    off="no Mamba group",
)
