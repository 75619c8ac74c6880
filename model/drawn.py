"""Clusters drawn at random: one seed, one cluster, over everything an engine can be set to.

Presets are small on purpose and chosen by us. These are chosen by nobody.
"""

import random

from kvproof.model.config import Cluster, Engine, Group
from kvproof.model.errors import UsageError

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
WINDOWS = (2, 3, 4, 7)
"""Tokens. A window of one token never reads the cache, and no model has it."""
CHUNKS = (1, 2, 3, 5, 8, 16)
POOLS = (9, 12, 16, 24, 40)
RATIOS = (1, 1, 1, 2)
"""Kernel blocks of a block."""
PAIRED = ("uncached", "retention", "priority", "limit", "async", "losses", "resets")
ALONE = (*PAIRED[:-2], "resets", "store", "drafts", "eagle", "sessions", "oversized")
"""Features of a pair and of a lone engine, of which a cluster has up to three. Two that exclude
each other make the cluster impossible, and another is drawn."""


def _groups(draw: random.Random, layout: tuple[str, ...], eagle: bool) -> tuple[Group, ...]:
    size = draw.choice(BLOCK_SIZES)

    def group(kind: str) -> Group:
        if kind == "window":
            return Group(kind, size, window=draw.choice(WINDOWS), eagle=eagle)
        if kind == "state":
            return Group("mamba", 4096, mode="none")
        return Group(kind, size, eagle=eagle and kind == "full")

    return tuple(group(kind) for kind in layout)


def _cluster(name: str, draw: random.Random) -> Cluster:
    pair = draw.random() < 0.5
    features = PAIRED if pair else ALONE
    chosen = set(draw.sample(features, draw.choice((0, 1, 1, 2, 2, 3))))
    layout = ("full",) if "sessions" in chosen else draw.choice(LAYOUTS)
    groups = _groups(draw, layout, "eagle" in chosen)
    ratio = draw.choice(RATIOS) if pair else 1

    def engine(name: str, role: str) -> Engine:
        return Engine(
            name,
            groups,
            draw.choice(POOLS),
            role,
            draw.choice(CHUNKS),
            ratio,
            prefix_caching="uncached" not in chosen and "state" not in layout,
            retention=retention,
            store="store" in chosen,
            policy="priority" if "priority" in chosen else "fcfs",
            max_requests=limit,
            steps_in_flight=2 if "async" in chosen else 1,
            drafts=drafts,
        )

    retention = draw.choice((0, 0, 8, 16)) if "retention" in chosen else None
    limit = draw.choice((1, 2)) if "limit" in chosen else 256
    drafts = draw.choice((1, 2, 3)) if chosen & {"drafts", "eagle"} else 0
    engines = (engine("P", "prefill"), engine("D", "decode")) if pair else (engine("E", "both"),)
    return Cluster(
        name,
        engines,
        aborts=draw.random() < 0.5,
        failures=draw.choice((0, 1, 2)) if pair else 0,
        losses="losses" in chosen,
        evictions=draw.random() < 0.3,
        resets="resets" in chosen,
        resets_any_time="resets" in chosen and draw.random() < 0.5,
        load_failure=draw.choice(("fail", "recompute")),
        sessions="sessions" in chosen,
        oversized="oversized" in chosen,
    )


def drawn(seed: int) -> Cluster:
    """The cluster of this seed, without jobs: the first possible one that it draws."""
    draw = random.Random(f"{PREFIX}{seed}")
    while True:
        try:
            return _cluster(f"{PREFIX}{seed}", draw)
        except UsageError:
            continue


def from_name(name: str) -> Cluster:
    """The cluster of a name like random:7. Raises UsageError where no seed follows."""
    seed = name.removeprefix(PREFIX)
    if not seed.isdecimal():
        raise UsageError(f"{name} has no seed. Write {PREFIX} and a whole number from 0 on.")
    return drawn(int(seed))
