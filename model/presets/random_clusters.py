"""Clusters drawn at random: one seed, one cluster, over everything an engine can be set to.

Presets are small on purpose and chosen by us. These are chosen by nobody. A release of kvproof may
draw another cluster of the same seed.
"""

import random
from dataclasses import replace

from kvproof.model.config import Cluster, Engine, Group
from kvproof.model.errors import UsageError
from kvproof.model.reference.blocks.capacity import needed_blocks

PREFIX = "random:"
"""A cluster of this name and a seed is drawn."""

LAYOUTS = (
    ("full",),
    ("window",),
    ("full", "window"),
    ("full", "mamba"),
    ("full", "window", "mamba"),
    ("full", "window", "window"),
    ("full", "full", "window", "mamba"),
    ("full", "state"),
)
"""Kinds of cache groups side by side; `state` is a Mamba group of mode none."""

BLOCK_SIZES = (1, 2, 4, 8)
UNITS = (1, 2)
"""Tokens between two prefixes with a hash, where hits may end inside a block."""
WINDOWS = (2, 3, 4, 7)
"""Tokens. A window of one token never reads the cache, and no model has it."""
CHUNKS = (1, 2, 3, 5, 8, 16)
POOLS = (9, 12, 16, 24, 40)
RATIOS = (1, 1, 1, 2)
"""Kernel blocks of a block, where P and D have as many."""
OTHER_RATIOS = (1, 2, 4)
"""Kernel blocks of a block, where each of them has its own."""
TOKENS_LEAST = 2
"""Computed tokens that every engine has blocks for."""

EVERYWHERE = (
    *("uncached", "retention", "priority", "limit", "async", "resets", "unequal"),
    *("drafts", "eagle", "inside"),
)
PAIRED = (*EVERYWHERE, "losses", "stray", "ratios", "turns", "push")
ALONE = (
    *EVERYWHERE,
    *("store", "failing", "sessions", "oversized", "events"),
)
"""Features of a pair and of a lone engine, of which a cluster has up to three. Two that exclude
each other make the cluster impossible, and another is drawn."""


def _groups(
    draw: random.Random, layout: tuple[str, ...], eagle: bool, unequal: bool
) -> tuple[Group, ...]:
    size = draw.choice(BLOCK_SIZES)

    def group(kind: str) -> Group:
        own = draw.choice(BLOCK_SIZES) if unequal else size
        if kind == "mamba" and unequal:
            own = max(BLOCK_SIZES)  # a state has the widest blocks
        if kind == "window":
            return Group(kind, own, window=draw.choice(WINDOWS), eagle=eagle)
        if kind == "state":
            return Group("mamba", 4096, mode="none")
        return Group(kind, own, eagle=eagle and kind == "full")

    return tuple(group(kind) for kind in layout)


def _with_kernel_blocks(groups: tuple[Group, ...], ratio: int) -> tuple[Group, ...]:
    """The groups of an engine whose blocks have so many kernel blocks each, of sizes as before."""
    return tuple(replace(g, block_size=g.block_size * ratio) if g.attention else g for g in groups)


def _suits(layout: tuple[str, ...], chosen: set[str]) -> bool:
    """Whether features that ask much of the groups can have these."""
    if "failing" in chosen:
        return layout == ("full",)
    if "inside" in chosen:
        return "mamba" in layout
    return "unequal" not in chosen or "state" not in layout


def _cluster(name: str, draw: random.Random) -> Cluster:
    pair = draw.random() < 0.5
    features = PAIRED if pair else ALONE
    chosen = set(draw.sample(features, draw.choice((0, 1, 2, 2, 3, 3))))
    layout = draw.choice([kinds for kinds in LAYOUTS if _suits(kinds, chosen)])
    groups = _groups(draw, layout, "eagle" in chosen, "unequal" in chosen)
    common = draw.choice(RATIOS) if pair else 1
    unit = draw.choice(UNITS) if "inside" in chosen else 0

    def engine(name: str, role: str) -> Engine:
        other = "ratios" in chosen
        ratio = draw.choice(OTHER_RATIOS) if other else common
        return Engine(
            name,
            _with_kernel_blocks(groups, ratio) if other else groups,
            draw.choice(POOLS),
            role,
            draw.choice(CHUNKS),
            ratio,
            prefix_caching="uncached" not in chosen and "state" not in layout,
            retention=retention,
            kv_events="events" in chosen,
            store=bool(chosen & {"store", "failing"}),
            policy="priority" if "priority" in chosen else "fcfs",
            max_requests=limit,
            steps_in_flight=2 if "async" in chosen else 1,
            drafts=drafts,
            match_unit=unit,
        )

    retention = draw.choice((0, 0, 8, 16)) if "retention" in chosen else None
    limit = draw.choice((1, 2)) if "limit" in chosen else 256
    drafts = draw.choice((1, 2, 3)) if chosen & {"drafts", "eagle"} else 0
    engines = (engine("P", "prefill"), engine("D", "decode")) if pair else (engine("E", "both"),)
    return Cluster(
        name,
        engines,
        aborts=draw.random() < 0.5,
        failures=draw.choice((0, 1, 2)) if pair else int("failing" in chosen),
        losses="losses" in chosen,
        evictions=draw.random() < 0.3,
        resets="resets" in chosen,
        resets_any_time="resets" in chosen and draw.random() < 0.5,
        load_failure=draw.choice(("fail", "recompute")),
        sessions="sessions" in chosen,
        oversized="oversized" in chosen,
        stray="stray" in chosen,
        follow_up_turns="turns" in chosen,
        transfer="push" if "push" in chosen else "pull",
    )


def _with_hash_lookahead(cluster: Cluster) -> Cluster:
    """The cluster with hashes that cover the next token, in half of the cases where they can. They
    are drawn for themselves, so that the other clusters stay what they were."""
    if random.Random(f"{cluster.name} hash_lookahead_tokens").random() < 0.5:
        return cluster
    try:
        return replace(
            cluster,
            engines=tuple(replace(e, hash_lookahead_tokens=1) for e in cluster.engines),
        )
    except UsageError:
        return cluster


def drawn(seed: int) -> Cluster:
    """The cluster of this seed, without jobs: the first possible one that it draws, with room for
    a prompt of a token and two tokens of output."""
    draw = random.Random(f"{PREFIX}{seed}")
    while True:
        try:
            cluster = _cluster(f"{PREFIX}{seed}", draw)
        except UsageError:
            continue
        cluster = _with_hash_lookahead(cluster)
        roomy = all(needed_blocks(e, TOKENS_LEAST) < e.num_blocks for e in cluster.engines)
        if roomy:
            return cluster


def from_name(name: str) -> Cluster:
    """The cluster of a name like random:7. Raises UsageError where no seed follows."""
    seed = name.removeprefix(PREFIX)
    if not seed.isdecimal():
        raise UsageError(f"{name} has no seed. Write {PREFIX} and a whole number from 0 on.")
    return drawn(int(seed))
