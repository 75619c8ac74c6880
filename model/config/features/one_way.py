"""P only sends KV, and D only receives it: the roles that deployments give them."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.random_settings import RandomSettings


def _draw(settings: RandomSettings) -> None:
    settings.on_engines(one_way=settings.pair)


FEATURE = Feature(
    id="one_way",
    section="P/D",
    name="one-way roles",
    words="P as `kv_producer` and D as `kv_consumer`, otherwise both as `kv_both`",
    options="`one_way`",
    of=EngineConfig,
    used=lambda engine: engine.one_way,
    off="one_way false",
    needs=("pd",),
    exclusions=(
        Exclusion(
            of=Cluster,
            beside=("follow_up_turns",),
            because="and P, which then loads from D, must be kv_both",
            live=True,
        ),
    ),
    draw=_draw,
    chance=0.5,
)
