"""Sliding windows: what a request no longer sees is freed."""

from kvproof.model.config.engine import Engine
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="windows",
    section="cache groups",
    name="windows",
    words="sliding windows",
    options="`window` of a group",
    of=Engine,
    used=lambda engine: any(g.kind == "window" for g in engine.groups),
    off="no window group",
)
