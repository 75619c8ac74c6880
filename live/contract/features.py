"""The features that can be driven independently, and which of them a cluster uses."""

from collections.abc import Iterable
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.config.features import registry

CORE = "core"
KIT = "connector kit"


class Feature(NamedTuple):
    """A feature, the features that it needs, and its id in the table of features if one feature of
    that table needs it. A vLLM that lacks what does not drive can be driven as well. A `later`
    feature came after the release that is tested in full: that release lacks it rightly."""

    what: str
    needs: tuple[str, ...] = ()
    id: str = ""
    drives: bool = True
    later: bool = False


FEATURES = {
    CORE: Feature("one engine with full attention: without it nothing can be driven"),
    "windows": Feature("sliding-window groups", (CORE,), "windows"),
    "states": Feature("Mamba groups", (CORE,), "mamba"),
    "shared prefixes": Feature("blocks kept at a shared prefix boundary", (CORE,)),
    "retention": Feature("a sparse cache", (CORE,), "retention"),
    "partial hits": Feature("hits that end inside a block", ("states",), "partial_block_hits"),
    "priority": Feature("requests served by priority", (CORE,), "priority"),
    "whole prompts": Feature("a choice of admission", (CORE,), "whole_prompt"),
    "long prefills": Feature("a limit on long prefills", (CORE,), "long_prefill"),
    "watermark": Feature("blocks kept free at an admission", (CORE,), "watermark"),
    "aborts": Feature("requests that are aborted", (CORE,), "aborts"),
    "evictions": Feature("blocks evicted from outside", (CORE,), "evictions"),
    "resets": Feature("the prefix cache reset", (CORE,), "resets"),
    "sessions": Feature("prompts that arrive in parts", (CORE,), "sessions"),
    "extra keys": Feature("requests with a salt or an adapter", (CORE,), "extra_keys"),
    "embeddings": Feature("prompts of embeddings", (CORE,), "embeddings"),
    "async": Feature("steps that overlap", (CORE,), "async_scheduling"),
    "drafts": Feature("speculative decoding", (CORE,), "drafts"),
    "lookahead hashes": Feature(
        "block hashes that cover the next token", ("drafts",), "hash_lookahead", later=True
    ),
    "kv events": Feature("the KV events of an engine", (CORE,), "kv_events"),
    "connector": Feature("a KV connector", (CORE,)),
    "store": Feature("an external store of prefixes", ("connector",), "store"),
    "failed loads": Feature("loads that fail", ("connector",)),
    "P/D": Feature("requests prefilled on P and decoded on D", ("connector",), "pd"),
    "one way": Feature("a producer and a consumer", ("P/D",), "one_way"),
    "pull": Feature("D reads from P over NIXL", ("P/D",)),
    "push": Feature("P writes to D over NIXL", ("P/D", "failed loads"), "push"),
    "turns": Feature("the reverse transfer: P reads what D keeps", ("pull",), "follow_up_turns"),
    KIT: Feature(
        "any KV connector, with a worker of the kit",
        ("connector", "windows", "states", "async", "aborts", "resets"),
    ),
    "watching": Feature("a running engine is watched", drives=False),
    "functions": Feature("single functions, called on the cases of a rule", ("P/D", "windows")),
    "start-up": Feature("the sizing of the KV caches at the start", ("windows", "states")),
    "engine loop": Feature("the loop of the engine and its messages", ("pull", "start-up")),
    "refusals": Feature("requests that the front of the engine refuses", ("engine loop",)),
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
        "failed loads": bool(cluster.failures) and "store" not in table,
        "pull": cluster.disaggregated and not cluster.pushes,
    }
    used = [name for name, f in FEATURES.items() if f.id in table]
    return with_needs([CORE, *used, *(name for name, is_used in besides.items() if is_used)])
