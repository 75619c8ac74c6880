"""A state is also cached where prompts part, inside a block: an EAGLE hit resumes there."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature
from kvproof.model.config.features.eagle import draw_eagle
from kvproof.model.config.features.partial_block_hits import MATCH_UNITS
from kvproof.model.config.random_settings import RandomSettings


def _draw(settings: RandomSettings) -> None:
    draw_eagle(settings)
    settings.on_engines(match_unit=settings.choose(MATCH_UNITS), prefix_checkpoint=True)


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
