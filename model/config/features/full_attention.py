"""Full-attention groups: a request needs its blocks until it ends."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="full_attention",
    section="cache groups",
    name="full attention",
    words="full attention; one to many groups of any kind",
    options="`kind` of a group",
    of=EngineConfig,
    used=lambda engine: any(g.kind == "full" for g in engine.groups),
)
