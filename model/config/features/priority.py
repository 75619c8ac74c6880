"""Requests are scheduled by the priority of their jobs."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="priority",
    section="engine",
    name="serving by priority",
    words="requests served by priority",
    options="`policy`, `priority` of a job",
    of=EngineConfig,
    used=lambda engine: engine.by_priority,
    on="policy priority for an engine",
    job_field="priority",
    draw=lambda settings: settings.on_engines(policy="priority"),
)
