"""Groups whose blocks have different numbers of tokens."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature, Limit, Refusal
from kvproof.model.config.random_settings import BLOCK_SIZES, RandomSettings


def _mamba_is_widest(engine: EngineConfig) -> Refusal | None:
    widest = max(engine.block_sizes, default=0)
    if any(g.aligned and g.block_size < widest for g in engine.groups):
        return Refusal(
            f"Engine {engine.name} has a Mamba group of narrower blocks than {widest}, which "
            "kvproof does not model",
            f"block_size {widest} for every Mamba group",
        )
    return None


def _draw(settings: RandomSettings) -> None:
    for group in settings.attention():
        group["block_size"] = settings.choose(BLOCK_SIZES)
    for group in settings.aligned():
        group["block_size"] = max(BLOCK_SIZES)


FEATURE = Feature(
    id="unequal_block_sizes",
    section="cache groups",
    name="unequal block sizes",
    words="unequal block sizes",
    options="`block_size` of a group",
    of=EngineConfig,
    used=lambda engine: len(engine.block_sizes) > 1,
    off="one block_size for all groups",
    limits=(
        Limit(of=EngineConfig, check=_mamba_is_widest, words="Mamba blocks narrower than others"),
    ),
    draw=_draw,
)
