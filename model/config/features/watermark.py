"""A watermark: blocks that an admission leaves free where another request runs."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature, Limit, Refusal

BLOCKS = (1, 2, 3)
"""In a random cluster."""


def _below_the_pool(engine: EngineConfig) -> Refusal | None:
    if engine.watermark_blocks >= engine.num_blocks:
        return Refusal(
            f"Engine {engine.name} keeps {engine.watermark_blocks} of {engine.num_blocks} blocks "
            "free",
            f"watermark_blocks of at most {engine.num_blocks - 1}",
        )
    return None


FEATURE = Feature(
    id="watermark",
    section="engine",
    name="a watermark",
    words="blocks kept free at an admission beside running requests",
    options="`watermark_blocks`",
    of=EngineConfig,
    used=lambda engine: engine.watermark_blocks > 0,
    limits=(Limit(of=EngineConfig, check=_below_the_pool),),
    draw=lambda settings: settings.on_engines(watermark_blocks=settings.choose(BLOCKS)),
    chance=0.15,
)
