"""P/D: a request is prefilled on one engine and decoded on another."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature
from kvproof.model.config.random_settings import RandomSettings

RATIOS = (1, 1, 1, 2)
"""Kernel blocks per block of both engines, in a random cluster."""


def _draw(settings: RandomSettings) -> None:
    settings.on_engines(physical_per_logical=settings.choose(RATIOS))
    settings.on_cluster(failures=settings.choose((0, 1, 2)))


FEATURE = Feature(
    id="pd",
    section="P/D",
    name="P/D",
    words="P/D: a prefill and a decode engine, over NIXL pull",
    options="`role`",
    of=EngineConfig,
    used=lambda engine: engine.connected,
    on="one prefill and one decode engine",
    off="role both",
    draw=_draw,
    chance=0.5,
)
