"""An external store, which loads prefixes within the step."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature

FEATURE = Feature(
    id="store",
    section="engine",
    name="a store",
    words="loads within the step, from a store",
    options="`store`",
    of=EngineConfig,
    used=lambda engine: engine.store,
    off="store false",
    exclusions=(Exclusion(of=EngineConfig, beside=("pd",), live=True),),
    draw=lambda settings: settings.on_engines(store=True),
)
