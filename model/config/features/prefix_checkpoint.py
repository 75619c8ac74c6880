"""A state is also cached where prompts part, inside a block: an EAGLE hit resumes there."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature
from kvproof.model.config.features.eagle import draw_eagle
from kvproof.model.config.features.partial_block_hits import MATCH_UNITS
from kvproof.model.config.random_settings import RandomSettings

BLOCK_SIZE = 8
"""Of a Mamba group in a random cluster, at least: wider than a prefix with a hash."""


def _draw(settings: RandomSettings) -> None:
    aligned = [*settings.aligned()]
    if not aligned:
        return
    unit = settings.choose(MATCH_UNITS)
    for group in aligned:
        group["block_size"] = max(group["block_size"], BLOCK_SIZE)
    for group in settings.attention():
        group["block_size"] = unit  # a wider window prevents hits inside a block
    draw_eagle(settings)
    settings.on_engines(match_unit=unit, prefix_checkpoint=True)


FEATURE = Feature(
    id="prefix_checkpoint",
    section="prefix cache",
    name="states where prompts part",
    words="states that are cached where prompts part, inside a block",
    options="`prefix_checkpoint`",
    of=EngineConfig,
    used=lambda engine: engine.prefix_checkpoint,
    off="prefix_checkpoint false",
    needs=("eagle", "partial_block_hits"),
    draw=_draw,
)
