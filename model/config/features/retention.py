"""Sparse retention: only some blocks of windows and states stay in the cache."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import NOT_MODELLED, Exclusion, Feature, Limit, Refusal

INTERVALS = (0, 0, 8, 16)
"""Tokens, in a random cluster."""


def _ends_where_a_hit_can(engine: EngineConfig) -> Refusal | None:
    unit = max(engine.hit_unit, *(g.block_size for g in engine.groups))
    if engine.retention is not None and engine.retention % unit:
        return Refusal(
            f"The retention {engine.retention} of engine {engine.name} is not where a hit can end",
            f"a multiple of {unit}, or 0",
        )
    return None


def _periodic_beside_full(engine: EngineConfig) -> Refusal | None:
    if engine.retention and all(g.kind == "full" for g in engine.groups):
        return Refusal(
            f"Engine {engine.name} keeps blocks every {engine.retention} tokens and has only full "
            "attention, which keeps them all",
            "retention 0, or another group",
        )
    return None


FEATURE = Feature(
    id="retention",
    section="prefix cache",
    name="sparse retention",
    words="sparse or periodic retention",
    options="`retention`",
    of=EngineConfig,
    used=lambda engine: engine.retention is not None,
    off="retention null",
    exclusions=(
        Exclusion(
            of=EngineConfig,
            beside=("partial_block_hits", "windows"),
            because="which keeps a window where two prompts diverge and a state at the block end "
            f"before that, {NOT_MODELLED}",
            instead="retention null, or no window group",
        ),
        Exclusion(
            of=EngineConfig,
            beside=("eagle",),
            where=lambda engine: any(
                g.eagle and g.block_size != engine.hit_unit for g in engine.groups
            ),
            only="in smaller blocks than other groups",
            because=f"where the hit unit is longer than the drafter's blocks, {NOT_MODELLED}",
            instead="one block_size for all groups, or retention null",
        ),
    ),
    limits=(
        Limit(of=EngineConfig, check=_ends_where_a_hit_can),
        Limit(
            of=EngineConfig, check=_periodic_beside_full, words="a period, with full groups only"
        ),
    ),
    draw=lambda settings: settings.on_engines(retention=settings.choose(INTERVALS)),
)
