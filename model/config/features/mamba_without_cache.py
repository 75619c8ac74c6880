"""Mamba of mode none: one state for each request, and nothing is cached."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="mamba_without_cache",
    section="cache groups",
    name="Mamba of mode none",
    words="Mamba, one state for each request and no cache (`none`)",
    options="`mode` of a group",
    of=EngineConfig,
    used=lambda engine: any(not g.attention and not g.aligned for g in engine.groups),
    off="mode align",
    needs=("no_prefix_cache",),
)
