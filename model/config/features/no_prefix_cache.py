"""An engine without a prefix cache."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="no_prefix_cache",
    section="prefix cache",
    name="prefix_caching false",
    words="no prefix cache",
    options="`prefix_caching`",
    of=EngineConfig,
    used=lambda engine: not engine.prefix_caching,
    on="prefix_caching false",
    off="prefix_caching true",
    draw=lambda settings: settings.on_engines(prefix_caching=False),
)
