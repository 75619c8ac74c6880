"""Hits that end inside a block, with an aligned Mamba group. The block is then copied."""

import math

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal

MATCH_UNITS = (1, 2)
"""Tokens between two prefixes with a hash, in a random cluster."""


def _match_unit_divides(engine: EngineConfig) -> Refusal | None:
    unit, sizes = engine.match_unit, engine.block_sizes
    if unit and (engine.aligned_group is None or any(size % unit for size in sizes)):
        return Refusal(
            f"The match_unit {unit} of engine {engine.name} requires an aligned Mamba group, and "
            "must divide every block size",
            f"0, or such a group and a divisor of {math.gcd(*sizes)}",
        )
    return None


def _one_full_group(engine: EngineConfig) -> Refusal | None:
    full = [g for g in engine.groups if g.kind == "full"]
    if engine.partial_block_hits and len(full) != 1:
        return Refusal(
            f"Hits of engine {engine.name} may end inside a block, which kvproof models only with "
            "one full group",
            "such groups, or one block_size for all groups and match_unit 0",
        )
    return None


FEATURE = Feature(
    id="partial_block_hits",
    section="prefix cache",
    name="hits inside a block",
    words="hits that end inside a block, and their copies",
    options="`match_unit`, or unequal sizes",
    of=EngineConfig,
    used=lambda engine: engine.partial_block_hits,
    on="a Mamba block_size above match_unit",
    off="one block_size for all groups and match_unit 0",
    needs=("mamba",),
    exclusions=(
        Exclusion(of=EngineConfig, beside=("pd",), live=True),
        Exclusion(of=EngineConfig, beside=("store",), live=True),
        Exclusion(of=EngineConfig, beside=("drafts",), live=True),
        Exclusion(of=EngineConfig, beside=("eagle",), live=True),
        Exclusion(
            of=EngineConfig, beside=("no_prefix_cache",), because="which leaves nothing to hit"
        ),
    ),
    limits=(
        Limit(of=EngineConfig, check=_match_unit_divides),
        Limit(of=EngineConfig, check=_one_full_group, words="two full groups"),
    ),
    draw=lambda settings: settings.on_engines(match_unit=settings.choose(MATCH_UNITS)),
)
