"""Async scheduling: a step is scheduled while an earlier step is in flight."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="async_scheduling",
    section="engine",
    name="async scheduling",
    words="async scheduling",
    options="`steps_in_flight`",
    of=EngineConfig,
    used=lambda engine: engine.overlaps,
    off="steps_in_flight 1",
    draw=lambda settings: settings.on_engines(steps_in_flight=2),
    chance=0.4,
)
