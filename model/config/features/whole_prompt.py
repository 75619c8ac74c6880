"""Whether a request is admitted only where all its tokens fit."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="whole_prompt",
    section="engine",
    name="a choice of admission",
    words="admission where the whole prompt fits, or only its first chunk",
    options="`reserve_whole_prompt`",
    of=EngineConfig,
    used=lambda engine: engine.reserve_whole_prompt is not None,
    draw=lambda settings: settings.on_engines(reserve_whole_prompt=settings.choose((True, False))),
    chance=0.3,
)
