"""KV events: the engine reports each change of its cache."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal


def _parents_were_reported(engine: EngineConfig) -> Refusal | None:
    if not engine.kv_events:
        return None
    first = engine.groups[0]
    if first.kind != "full" or engine.hash_unit < engine.hit_unit:
        return Refusal(
            f"A KV event of engine {engine.name} could name a parent that full attention never "
            "reported",
            "a full group first and one block_size for all groups, or kv_events false",
        )
    if engine.partial_block_hits and first.block_size > engine.hash_unit:
        return Refusal(
            f"A KV event of engine {engine.name} could name a parent inside a block of full "
            "attention, which never reported it",
            f"block_size {engine.hash_unit} for the full group, or kv_events false",
        )
    return None


FEATURE = Feature(
    id="kv_events",
    section="prefix cache",
    name="KV events",
    words="KV events, replayed by a listener",
    options="`kv_events`",
    of=EngineConfig,
    used=lambda engine: engine.kv_events,
    off="kv_events false",
    exclusions=(
        Exclusion(
            of=EngineConfig,
            beside=("partial_block_hits", "async_scheduling"),
            instead="steps_in_flight 1, or kv_events false",
        ),
    ),
    limits=(
        Limit(
            of=EngineConfig,
            check=_parents_were_reported,
            words="unequal block sizes, but for hits inside a block of Mamba; a window or Mamba "
            "group first",
        ),
    ),
    draw=lambda settings: settings.on_engines(kv_events=True),
)
