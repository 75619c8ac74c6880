"""Clusters drawn at random: one seed, one cluster, over everything an engine can be set to.

Presets are small on purpose and chosen by us. These are chosen by nobody.
"""

import random
from typing import Any

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


def _groups(draw: random.Random, layout: tuple[str, ...]) -> tuple[Group, ...]:
    size = draw.choice(BLOCK_SIZES)

    def group(kind: str) -> Group:
        if kind == "window":
            return Group(kind, size, window=draw.choice(WINDOWS))
        if kind == "state":
            return Group("mamba", 4096, mode="none")
        return Group(kind, size)

    return tuple(group(kind) for kind in layout)


def _engine_options(draw: random.Random, pair: bool) -> dict[str, Any]:
    """What both engines of a pair have alike: each feature in some clusters, most in few."""
    options: dict[str, Any] = {"prefix_caching": draw.random() < 0.9}
    if draw.random() < 0.3:
        options["retention"] = draw.choice((0, 0, 8, 16))
    if draw.random() < 0.2:
        options["policy"] = "priority"
    if draw.random() < 0.2:
        options["max_requests"] = draw.choice((1, 2))
    if draw.random() < 0.3:
        options["steps_in_flight"] = 2
    if not pair and draw.random() < 0.3:
        options["store"] = True
    return options


def _cluster(name: str, draw: random.Random) -> Cluster:
    groups = _groups(draw, draw.choice(LAYOUTS))
    pair = draw.random() < 0.6
    ratio = draw.choice(RATIOS) if pair else 1
    options = _engine_options(draw, pair)

    def engine(name: str, role: str) -> Engine:
        pool, chunk = draw.choice(POOLS), draw.choice(CHUNKS)
        return Engine(name, groups, pool, role, chunk, ratio, **options)

    engines = (engine("P", "prefill"), engine("D", "decode")) if pair else (engine("E", "both"),)
    resets = draw.random() < 0.3
    return Cluster(
        name,
        engines,
        aborts=draw.random() < 0.5,
        failures=draw.choice((0, 1, 2)) if pair else 0,
        losses=pair and draw.random() < 0.3,
        evictions=draw.random() < 0.3,
        resets=resets,
        resets_any_time=resets and draw.random() < 0.5,
        load_failure=draw.choice(("fail", "recompute")),
        sessions=not pair and draw.random() < 0.5,
    )


def drawn(seed: int) -> Cluster:
    """The cluster of this seed, without jobs: the first possible one that it draws."""
    draw = random.Random(seed)
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
