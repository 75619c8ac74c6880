"""What a cluster sets in vLLM, as features and constants of a generated file."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import fields

from kvproof.live import options
from kvproof.live.reproducer.layout import call, literal
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.config.extra_keys import ADAPTERS

KNOWN = {
    *("name", "groups", "num_blocks", "role", "chunk_tokens", "physical_per_logical"),
    *("prefix_caching", "retention", "kv_events", "store", "policy", "max_requests"),
    *("steps_in_flight", "drafts", "match_unit", "hash_lookahead_tokens", "one_way"),
    *("reserve_whole_prompt", "long_prefill_tokens", "watermark_blocks"),
}
"""The options of an engine that a generated file can set."""

Constants = dict[str, str]
"""Python source by the name of a constant."""


class Settings(NamedTuple):
    """`features` choose lines of the fragments. `constants` are equal for all engines; `of_engine`
    has those that are not, by engine."""

    features: frozenset[str]
    constants: Constants
    of_engine: dict[str, Constants]


def unsupported(cluster: Cluster) -> str:
    """Why no file can be generated for this cluster, empty where it can."""
    if cluster.pushes:
        return "push transfers need the worker of NIXL, which the generator does not write"
    for engine in cluster.engines:
        for field in fields(engine):
            if field.name not in KNOWN and getattr(engine, field.name) != field.default:
                return f"the generator does not know the option {field.name} of an engine"
        if engine.store and engine.connected:
            return "the generator does not know a store beside KV transfers"
        if engine.store and engine.drafts and engine.overlaps:
            return "the generator does not know what a store keeps of drafts in flight"
    if len({(e.drafts, e.lookahead, e.kv_events) for e in cluster.engines}) > 1:
        return "the generator does not know drafters or KV events of one engine only"
    return ""


def settings(cluster: Cluster) -> Settings:
    """The settings of a cluster."""
    found = {engine.name: _constants(cluster, engine) for engine in cluster.engines}
    first, *others = found.values()
    differ = [name for name in first if any(other[name] != first[name] for other in others)]
    equal = {name: value for name, value in first.items() if name not in differ}
    if "SPECS" in differ:  # they are long: each has a name
        for engine in cluster.engines:
            equal[f"{engine.role}_specs".upper()] = found[engine.name]["SPECS"]
            found[engine.name]["SPECS"] = f"{engine.role}_specs".upper()
    of_engine = {name: {n: found[name][n] for n in differ} for name in found}
    return Settings(frozenset(_features(cluster)), equal, of_engine)


def _features(cluster: Cluster) -> Iterator[str]:
    for engine in cluster.engines:
        choices: dict[str, Any] = {
            "store": engine.store,
            "early_store": engine.store and engine.overlaps,
            "late_store": engine.store and not engine.overlaps,
            "state": engine.has_state,
            "connected": engine.connected,
            "connector": engine.has_connector,
            "drafts": engine.drafts,
            "proposed": engine.drafts and not engine.overlaps,
            "eagle": engine.lookahead,
            "flagged": any(g.eagle for g in engine.groups)
            and any(g.attention and not g.eagle for g in engine.groups),
            "ahead": engine.hash_lookahead_tokens,
            "events": engine.kv_events,
            "mamba": engine.has_state,
            "retention": engine.retention is not None,
            "priority": cluster.by_priority,
            "sessions": any(job.parts for job in cluster.jobs),
            "embeds": any(job.embeds for job in cluster.jobs),
            "salts": any(job.extra_key == "salt" for job in cluster.jobs),
            "adapters": any(job.extra_key in ADAPTERS for job in cluster.jobs),
            "turns": cluster.follow_up_turns,
            "options": options.of_scheduler(engine),
            "failed_load": engine.store and cluster.failures,
        }
        yield from (name for name, chosen in choices.items() if chosen)


def _constants(cluster: Cluster, engine: EngineConfig) -> Constants:
    blocks = [group.block_size for group in engine.groups]
    states = [group for group in engine.groups if group.kind == "mamba"]
    values: dict[str, Any] = {
        "ENGINE_ID": engine.name,
        "NUM_BLOCKS": engine.num_blocks,
        "BLOCK_SIZE": min(blocks),
        "SCHEDULER_BLOCK_SIZE": max(blocks),
        "HASH_BLOCK_SIZE": engine.hash_unit if engine.partial_block_hits else min(blocks),
        "MAX_NUM_SEQS": engine.max_requests,
        "MAX_NUM_BATCHED_TOKENS": engine.chunk_tokens,
        "PREFIX_CACHING": engine.prefix_caching,
        "OVERLAPS": engine.overlaps,
        "POLICY": engine.policy,
        "LOAD_FAILURE": cluster.load_failure,
        "KV_ROLE": options.kv_role(engine),
        "SCHEDULER_OPTIONS": options.of_scheduler(engine),
        "CONNECTOR": "StoreConnector" if engine.store else "NixlConnector",
        "MAMBA_CACHE_MODE": states[0].mode if states else "none",
        "MAMBA_BLOCK_SIZE": states[0].block_size if states else 0,
        "DRAFTS": engine.drafts,
        "DRAFTER": "eagle" if engine.lookahead else "ngram",
        "NO_LOOKAHEAD": not engine.hash_lookahead_tokens,
        "RETENTION": engine.retention,
        "STORE_UNIT": engine.hit_unit,
    }
    some = any(group.attention and not group.eagle for group in engine.groups)
    values["EAGLE"] = [i for i, group in enumerate(engine.groups) if group.eagle and some]
    return {name: literal(value) for name, value in values.items()} | {"SPECS": _specs(engine)}


def _specs(engine: EngineConfig) -> str:
    """The specs of the cache groups, one in a line."""
    lines = ["["]
    for group in engine.groups:
        lines += call(*_spec(group, engine.drafts), end="),", indent=4)
    return "\n".join([*lines, "]"])


def _spec(group: Group, drafts: int) -> tuple[str, list[str]]:
    size = f"block_size={group.block_size}"
    if group.kind == "full":
        return "FullAttentionSpec(", [size, "**SHAPE"]
    if group.kind == "window":
        return "SlidingWindowSpec(", [size, f"sliding_window={group.window}", "**SHAPE"]
    ahead = [f"num_speculative_blocks={drafts}"] if drafts else []
    return "MambaSpec(", [size, f'mamba_cache_mode="{group.mode}"', *ahead, "**STATE"]
