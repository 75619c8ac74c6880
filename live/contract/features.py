"""The features that can be driven independently, and which of them a cluster uses."""

from collections.abc import Iterable
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.config.features import registry

CORE = "core"
KIT = "connector kit"


class ContractFeature(NamedTuple):
    """A feature, the features that it needs, and its id in the table of features if one feature of
    that table needs it. A vLLM that lacks a feature for which `drives` is false can be driven all
    the same. A `later` feature came after the release that is tested in full, so that release may
    lack it."""

    what: str
    needs: tuple[str, ...] = ()
    id: str = ""
    drives: bool = True
    later: bool = False


FEATURES = {
    CORE: ContractFeature("one engine with full attention: without it nothing can be driven"),
    "windows": ContractFeature("sliding-window groups", (CORE,), "windows"),
    "states": ContractFeature("Mamba groups", (CORE,), "mamba"),
    "shared prefixes": ContractFeature("blocks kept at a shared prefix boundary", (CORE,)),
    "retention": ContractFeature("a sparse cache", (CORE,), "retention"),
    "partial hits": ContractFeature(
        "hits that end inside a block", ("states",), "partial_block_hits"
    ),
    "priority": ContractFeature("requests served by priority", (CORE,), "priority"),
    "whole prompts": ContractFeature("a choice of admission", (CORE,), "whole_prompt"),
    "long prefills": ContractFeature("a limit on long prefills", (CORE,), "long_prefill"),
    "states where prompts part": ContractFeature(
        "a state cached where prompts part", (CORE,), "prefix_checkpoint"
    ),
    "watermark": ContractFeature("blocks kept free at an admission", (CORE,), "watermark"),
    "aborts": ContractFeature("requests that are aborted", (CORE,), "aborts"),
    "evictions": ContractFeature("blocks evicted from outside", (CORE,), "evictions"),
    "resets": ContractFeature("the prefix cache reset", (CORE,), "resets"),
    "sessions": ContractFeature("prompts that arrive in parts", (CORE,), "sessions"),
    "extra keys": ContractFeature("requests with a salt or an adapter", (CORE,), "extra_keys"),
    "embeddings": ContractFeature("prompts of embeddings", (CORE,), "embeddings"),
    "async": ContractFeature("steps that overlap", (CORE,), "async_scheduling"),
    "drafts": ContractFeature("speculative decoding", (CORE,), "drafts"),
    "lookahead hashes": ContractFeature(
        "block hashes that cover the next token", ("drafts",), "hash_lookahead", later=True
    ),
    "kv events": ContractFeature("the KV events of an engine", (CORE,), "kv_events"),
    "connector": ContractFeature("a KV connector", (CORE,)),
    "store": ContractFeature("an external store of prefixes", ("connector",), "store"),
    "failed loads": ContractFeature("loads that fail", ("connector",)),
    "P/D": ContractFeature("requests prefilled on P and decoded on D", ("connector",), "pd"),
    "one way": ContractFeature("a producer and a consumer", ("P/D",), "one_way"),
    "pull": ContractFeature("D reads from P over NIXL", ("P/D",)),
    "push": ContractFeature("P writes to D over NIXL", ("P/D", "failed loads"), "push"),
    "store beside P/D": ContractFeature("a store beside KV transfers", ("store", "P/D")),
    "turns": ContractFeature(
        "the reverse transfer: P reads what D keeps", ("pull",), "follow_up_turns"
    ),
    "engine core": ContractFeature("the engine core and its steps", (CORE,)),
    KIT: ContractFeature(
        "any KV connector, with a worker of the kit",
        ("connector", "windows", "states", "async", "aborts", "resets", "engine core"),
    ),
    "watching": ContractFeature("a running engine is watched", drives=False),
    "start-up": ContractFeature(
        "the sizing of the KV caches at the start", ("windows", "states", "engine core")
    ),
    "engine loop": ContractFeature("the loop of the engine and its messages", ("pull", "start-up")),
    "pooling": ContractFeature("a model that pools", ("start-up",)),
    "repetition": ContractFeature("answers that end when they repeat themselves", ("engine loop",)),
}


def with_needs(features: Iterable[str]) -> list[str]:
    """These features and all features that they need, in the order of FEATURES."""
    found: set[str] = set()
    left = list(features)
    while left:
        feature = left.pop()
        found.add(feature)
        left += FEATURES[feature].needs
    return [feature for feature in FEATURES if feature in found]


def used_by(cluster: Cluster) -> list[str]:
    """The features that a cluster with its jobs uses, and all features that they need."""
    table = registry.used_by(cluster)
    besides = {
        "shared prefixes": any(e.marks_shared_prefix_boundaries for e in cluster.engines),
        "connector": any(e.has_connector for e in cluster.engines),
        "failed loads": bool(cluster.failures) and cluster.disaggregated,
        "store beside P/D": any(e.store and e.connected for e in cluster.engines),
        "pull": cluster.disaggregated and not cluster.pushes,
    }
    used = [name for name, f in FEATURES.items() if f.id in table]
    return with_needs([CORE, *used, *(name for name, is_used in besides.items() if is_used)])
