"""EAGLE or MTP: the drafter has layers of its own in some cache groups."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal
from kvproof.model.config.features.drafts import NUMBERS
from kvproof.model.config.random_settings import RandomSettings


def _narrow_full(engine: EngineConfig) -> Refusal | None:
    wide = (g for g in engine.groups if g.kind == "full" and g.block_size > engine.hash_unit)
    if any(g.eagle for g in wide):
        return Refusal(
            f"A drafter has layers in a full group of engine {engine.name} whose blocks are "
            "wider than others: vLLM then caches a different last block of a prompt, which kvproof "
            "does not model",
            "the smallest block_size for that group, or eagle false",
        )
    return None


def draw_eagle(settings: RandomSettings) -> None:
    """Draw the drafts, and give the drafter layers in all attention groups."""
    settings.on_engines(drafts=settings.choose(NUMBERS))
    for group in settings.attention():
        group["eagle"] = True


FEATURE = Feature(
    id="eagle",
    section="engine",
    name="EAGLE",
    words="drafters with layers of their own (EAGLE, MTP)",
    options="`eagle` of a group",
    of=EngineConfig,
    used=lambda engine: any(g.eagle for g in engine.groups),
    on="a drafter, and eagle for a group",
    off="eagle false",
    needs=("drafts",),
    exclusions=(
        Exclusion(
            of=EngineConfig,
            beside=("pd", "mamba"),
            because="where vLLM looks up hits with the token that P truncates, which kvproof does "
            "not model",
            live=True,
        ),
    ),
    limits=(
        Limit(
            of=EngineConfig,
            check=_narrow_full,
            words="full groups of wider blocks than others",
        ),
    ),
    draw=draw_eagle,
)
