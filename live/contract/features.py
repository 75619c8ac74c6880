"""What can be driven apart from other things, and which of it a cluster uses."""

from collections.abc import Iterable
from typing import NamedTuple

from kvproof.model.config import Cluster

CORE = "core"


class Feature(NamedTuple):
    """What it is, and the features that it stands on."""

    what: str
    needs: tuple[str, ...] = ()


FEATURES = {
    CORE: Feature("one engine with full attention: without it nothing can be driven"),
    "windows": Feature("sliding-window groups", (CORE,)),
    "states": Feature("Mamba groups", (CORE,)),
    "shared prefixes": Feature("blocks kept where two prompts part", (CORE,)),
    "retention": Feature("a sparse cache", (CORE,)),
    "partial hits": Feature("hits that end inside a block", ("states",)),
    "priority": Feature("requests served by priority", (CORE,)),
    "aborts": Feature("requests that are aborted", (CORE,)),
    "evictions": Feature("blocks evicted from outside", (CORE,)),
    "resets": Feature("the prefix cache reset", (CORE,)),
    "sessions": Feature("prompts that come in parts", (CORE,)),
    "embeddings": Feature("prompts of embeddings", (CORE,)),
    "async": Feature("steps that overlap", (CORE,)),
    "drafts": Feature("speculative decoding", (CORE,)),
    "lookahead hashes": Feature("block hashes that cover the next token", ("drafts",)),
    "kv events": Feature("what an engine tells of its cache", (CORE,)),
    "connector": Feature("a KV connector", (CORE,)),
    "store": Feature("an external store of prefixes", ("connector",)),
    "failed loads": Feature("loads that fail", ("connector",)),
    "P/D": Feature("requests prefilled on P and decoded on D", ("connector",)),
    "pull": Feature("D reads from P over NIXL", ("P/D",)),
    "push": Feature("P writes to D over NIXL", ("P/D", "failed loads")),
    "turns": Feature("P reads back what D has kept", ("pull",)),
    "functions": Feature("single functions called on the cases of a rule", ("P/D", "windows")),
}


def with_needs(features: Iterable[str]) -> list[str]:
    """These features and all that they stand on, in the order of the list."""
    found: set[str] = set()
    left = list(features)
    while left:
        feature = left.pop()
        found.add(feature)
        left += FEATURES[feature].needs
    return [feature for feature in FEATURES if feature in found]


def used_by(cluster: Cluster) -> list[str]:
    """The features that a cluster with its jobs uses, and all that they stand on."""
    engines, jobs = cluster.engines, cluster.jobs
    pairs = cluster.disaggregated
    store = any(e.store for e in engines)
    uses = {
        "windows": any(g.kind == "window" for e in engines for g in e.groups),
        "states": any(e.has_state for e in engines),
        "shared prefixes": any(e.marks_shared_prefix_boundaries for e in engines),
        "retention": any(e.retention is not None for e in engines),
        "partial hits": any(e.partial_block_hits for e in engines),
        "priority": cluster.by_priority,
        "aborts": cluster.aborts,
        "evictions": cluster.evictions,
        "resets": cluster.resets or cluster.resets_any_time,
        "sessions": cluster.sessions or any(job.parts for job in jobs),
        "embeddings": any(job.embeds for job in jobs),
        "async": any(e.overlaps for e in engines),
        "drafts": any(e.drafts for e in engines),
        "lookahead hashes": any(e.hash_lookahead_tokens for e in engines),
        "kv events": any(e.kv_events for e in engines),
        "connector": any(e.has_connector for e in engines),
        "store": store,
        "failed loads": bool(cluster.failures) and not store,
        "pull": pairs and not cluster.pushes,
        "push": cluster.pushes,
        "turns": cluster.follow_up_turns,
    }
    return with_needs([CORE, *(feature for feature, used in uses.items() if used)])
