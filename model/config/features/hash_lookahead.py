"""Lookahead block hashes: the hash of a block covers the token after it."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import NOT_MODELLED, Exclusion, Feature
from kvproof.model.config.features.eagle import draw_eagle
from kvproof.model.config.random_settings import RandomSettings

NO_CONNECTOR = "which vLLM does not do beside a KV connector"


def _draw(settings: RandomSettings) -> None:
    draw_eagle(settings)
    settings.on_engines(hash_lookahead_tokens=1)


FEATURE = Feature(
    id="hash_lookahead",
    section="prefix cache",
    name="lookahead block hashes",
    words="block hashes that cover the next token",
    options="`hash_lookahead_tokens`",
    of=EngineConfig,
    used=lambda engine: engine.hash_lookahead_tokens > 0,
    off="hash_lookahead_tokens 0",
    needs=("eagle",),
    exclusions=(
        Exclusion(of=EngineConfig, beside=("pd",), because=NO_CONNECTOR),
        Exclusion(of=EngineConfig, beside=("store",), because=NO_CONNECTOR),
        Exclusion(
            of=EngineConfig, beside=("no_prefix_cache",), because="which leaves nothing to hash"
        ),
        Exclusion(
            of=Cluster,
            beside=("sessions",),
            because="which drop the last token of an answer, although the hash of the block before "
            f"may cover that token, {NOT_MODELLED}",
            live=True,
        ),
    ),
    draw=_draw,
)
