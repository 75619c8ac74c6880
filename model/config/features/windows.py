"""Sliding windows: a request frees the blocks before its window."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="windows",
    section="cache groups",
    name="windows",
    words="sliding windows",
    options="`window` of a group",
    of=EngineConfig,
    used=lambda engine: any(g.kind == "window" for g in engine.groups),
    off="no window group",
)
