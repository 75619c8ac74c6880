"""Which features of kvproof the changed lines of a pull request name, by the contract with vLLM."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, count, islice

from msgspec.structs import replace

from kvproof.gate.difference.workload import Episodes
from kvproof.gate.search import workloads
from kvproof.gate.source.changes import ChangedFunction
from kvproof.live.contract.features import FEATURES
from kvproof.live.contract.table import TABLE
from kvproof.model.capacity import needed_blocks
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import used_by
from kvproof.model.presets.random_clusters import clusters_with

COMBINED = 12
"""How many clusters with the named features are made."""

TIGHT_TOKENS = 16
"""Every second one has pools for one request of so many tokens."""

CHOICE = 12
"""Of so many random clusters, the one with the most named features is driven."""

TRAITS = {
    "drafter": re.compile("eagle|spec_decode|draft|look_?ahead|shift_computed", re.IGNORECASE),
    "host buffers": re.compile("host_(xfer_)?buffer|need_save|to_save|to_host|buffer_device"),
    "hits in blocks": re.compile("partial|_cow|copy_on|hash_block_size|per_hash"),
    "local": re.compile("chunked_?local", re.IGNORECASE),
    "mamba": re.compile("mamba", re.IGNORECASE),
    "ranks": re.compile("context_parallel|[dp]?cp_(world_)?size|[dp]cp_rank"),
    "retention": re.compile("retention|reachable"),
    "tensor ranks": re.compile("tensor_(model_)?parallel|(^|_)tp_(size|rank|world)|num_kv_head"),
    "shared layer": re.compile("kv_sharing|shared_(by|kv|layer)|layer_specs?"),
    "uncached": re.compile("enable_(prefix_)?caching"),
    "window": re.compile("sliding_?window|swa", re.IGNORECASE),
}
"""What names in vLLM say that the code is about a trait of cache groups, in the connector kit."""

IN_PLANS = {
    "images": re.compile(r"\bmm_|_mm_|multi_?modal|encoder_?(cache|input)", re.IGNORECASE),
    "offloading": re.compile("prefill_stats|prefix_?cache_?stats|num_cached_tokens", re.IGNORECASE),
}
"""What names say that the code is about something that only plans of this subject of the connector
kit have: images, and statistics of prompts that were cached in part."""

IN_LOOPS = re.compile(
    "grammar|structured_output|reasoning|connector_stats|scheduler_stats|iteration_stats",
    re.IGNORECASE,
)
"""What names say that the code is about something that only plans of the loop have."""

MODELS = {"pools": re.compile("pooling|pooler_output|runner_type"), "drafts": TRAITS["drafter"]}
"""What names say that the code is about a kind of models of engine cores (`Engines.about`). Only
these pool, and only these have each kind of drafter."""

CONNECTING = re.compile(
    "connector|kv_transfer|external|remote|recving|invalid_block", re.IGNORECASE
)
"""What names say that the code is about what an engine and its connector tell each other."""

NAMES = {
    "aborts": re.compile("abort|finish_requests"),
    "async_scheduling": re.compile("async_(tokens|sched)|placeholder|in_flight"),
    "drafts": re.compile("spec_(token|decode)|draft|rejected|lookahead_tokens"),
    "eagle": re.compile("eagle", re.IGNORECASE),
    "embeddings": re.compile("embeds"),
    "evictions": re.compile("evict"),
    "extra_keys": re.compile("lora|salt|extra_keys"),
    "failures": re.compile("invalid_block|failed_recv|load_failure|affected"),
    "kv_events": re.compile("kv_(cache_)?event|BlockStored|BlockRemoved"),
    "long_prefill": re.compile("long_prefill"),
    "mamba": re.compile("mamba", re.IGNORECASE),
    "partial_block_hits": re.compile("partial|_cow|copy_on|block_copies|hash_block_size"),
    "pd": re.compile("remote|external|connector|recving"),
    "priority": re.compile("priority"),
    "resets": re.compile("reset|discard"),
    "retention": re.compile("retention|reachable"),
    "sessions": re.compile("streaming|resumable|session"),
    "watermark": re.compile("watermark"),
    "windows": re.compile("sliding_?window|swa", re.IGNORECASE),
}
"""What names in vLLM say that the code is about a feature, beside the names of the contract. They
only decide which clusters come first."""


def words_of(functions: Iterable[ChangedFunction]) -> frozenset[str]:
    """The names in the changed statements of these functions, and their own: what a function is
    about need not stand in each of its statements."""
    named = (each.words.union(each.name.split(".")) for each in functions)
    return frozenset[str]().union(*named)


def _matching(table: Mapping[str, re.Pattern[str]], words: frozenset[str]) -> tuple[str, ...]:
    """What of a table one of these words says that the code is about."""
    return tuple(what for what, name in table.items() if any(map(name.search, words)))


def traits(functions: Iterable[ChangedFunction]) -> tuple[str, ...]:
    """The traits of cache groups that the changed statements of these functions name."""
    return _matching(TRAITS, words_of(functions))


def in_plans(functions: Iterable[ChangedFunction]) -> frozenset[str]:
    """The subjects of the connector kit that the changed statements of these functions name."""
    return frozenset(_matching(IN_PLANS, words_of(functions)))


def connecting(functions: Iterable[ChangedFunction]) -> bool:
    """Whether the changed statements of these functions name what an engine and its connector tell
    each other."""
    return any(map(CONNECTING.search, words_of(functions)))


def in_loops(functions: Iterable[ChangedFunction]) -> bool:
    """Whether the changed statements of these functions name what only plans of the loop have."""
    return any(map(IN_LOOPS.search, words_of(functions)))


def models(functions: Iterable[ChangedFunction]) -> tuple[str, ...]:
    """The kinds of models of engine cores that the changed statements of these functions name."""
    return _matching(MODELS, words_of(functions))


def named(functions: Iterable[ChangedFunction]) -> frozenset[str]:
    """The ids of the features that the changed statements of these functions name: with a name that
    the contract has for that feature alone, or with one of `NAMES`."""
    words = words_of(functions)
    by_name: dict[str, set[str]] = {}
    for entry in TABLE:
        for place in entry.places:
            name = place.parameter or place.mentioned or (place.names[-1] if place.names else "")
            by_name.setdefault(name, set()).add(FEATURES[entry.feature].id)
    found = (ids for name, ids in by_name.items() if name in words)
    of_one = (id for ids in found if len(ids) == 1 for id in ids if id)
    return frozenset((*_matching(NAMES, words), *of_one))


def shared(cluster: Cluster, features: frozenset[str]) -> int:
    """How many of these features a cluster has."""
    return len(features & used_by(cluster)) if features else 0


def pairs(cluster: Cluster) -> frozenset[str]:
    """Each feature of a cluster, and each two of them."""
    used = sorted(used_by(cluster))
    return frozenset((*used, *map(" and ".join, combinations(used, 2))))


def combined(features: frozenset[str], seed: int) -> Iterator[Episodes]:
    """Random episodes of clusters with as many of these features as go together, at least two, and
    few others: those with the most first, `COMBINED` in all, and then other episodes of them,
    without end."""
    found = [*islice(_with_most_of(features, seed), COMBINED)]
    for part in count(0) if found else ():
        for number, cluster in enumerate(found, 1):
            made = replace(cluster, name=f"combined-{number}")
            yield workloads.of_cluster(made if number % 2 else _tight(made), seed, part)


def _with_most_of(features: frozenset[str], seed: int) -> Iterator[Cluster]:
    """Clusters with as many of these features as go together, at least two: the most first."""
    for size in range(len(features), 1, -1):
        for some in combinations(sorted(features), size):
            yield from clusters_with(frozenset(some), COMBINED // 3, f"{some} {seed}")


def _tight(cluster: Cluster) -> Cluster:
    """The same cluster with pools for one request."""
    engines = [replace(e, num_blocks=1 + needed_blocks(e, TIGHT_TOKENS)) for e in cluster.engines]
    return replace(cluster, engines=tuple(engines))


def preferred(clusters: Iterator[Episodes], features: frozenset[str]) -> Iterator[Episodes]:
    """Of each `CHOICE` random clusters the one with the most of these features; all, where none is
    named."""
    if not features:
        yield from clusters
    while some := [*islice(clusters, CHOICE)]:
        yield max(some, key=lambda each: shared(each.cluster, features))
