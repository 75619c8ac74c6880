"""Random clusters: each seed gives one cluster, and all settings of a cluster can occur.

Presets are small and chosen by hand. Random clusters are not chosen by hand: their features come
from the table in `config.features`. Another release of kvproof may generate another cluster from
the same seed.
"""

from random import Random
from typing import Any

from msgspec.structs import replace

from kvproof.model.capacity import needed_blocks
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.engine import Role
from kvproof.model.config.features.registry import FEATURES, exclusions, used_by
from kvproof.model.config.random_settings import BLOCK_SIZES, RandomSettings
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown

PREFIX = "random:"
"""The name of a random cluster is this prefix and its seed."""

DIGITS_MAX = 18
"""The largest number of digits of a seed."""

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
"""The kinds of the cache groups of an engine; `state` is a Mamba group of mode none."""

RARE_LAYOUTS = (("full", "window", "state"),)
"""Layouts of clusters made for their features only."""

WINDOWS = (2, 3, 4, 7)
"""The windows of random clusters, in tokens. A window of one token never reads the cache, and no
model has one."""
WINDOW_BLOCKS = (1, 2, 3)
"""Windows of real models are whole blocks. Only with blocks of more than two tokens does one block
less than a window can span make a difference."""
CHUNKS = (1, 2, 3, 5, 8, 16)
POOLS = (9, 12, 16, 24, 40)
"""The pool sizes of random clusters, in blocks. Half of the pools are instead as large as
`REQUESTS` requests of `TIGHT_TOKENS` tokens need, or up to two blocks larger: there one block more
or less makes a difference."""
REQUESTS = (1, 2)
TIGHT_TOKENS = (6, 9, 16, 24)
CHOSEN = (0, 1, 2, 2, 3, 3)
"""The numbers of features that a cluster may have, without the features that have a `chance`."""
TRIES = 100
"""The number of clusters that are tried with the chosen features before other features are
chosen."""
FEW_TRIES = 12
"""The smallest number of clusters that are made, so that some have few other features."""
TOKENS_LEAST = 2
"""The number of computed tokens for which each engine must have enough blocks."""


def random_cluster(seed: int) -> Cluster:
    """The cluster of this seed, without jobs: the first valid cluster that it generates with room
    for a prompt of one token and two output tokens."""
    random = Random(f"{PREFIX}{seed}")
    while True:
        pair = random.random() < FEATURES["pd"].chance
        chosen = _chosen(random, pair)
        for _ in range(TRIES if _combine(chosen) else 0):
            settings = _settings(random, pair, chosen)
            try:
                cluster = _cluster(f"{PREFIX}{seed}", settings)
            except UsageError:
                continue
            if used_by(cluster) >= chosen and all(map(_roomy, cluster.engines)):
                return cluster


def clusters_with(features: frozenset[str], count: int, seed: str) -> list[Cluster]:
    """Up to `count` different clusters that use these features, those with the fewest others first.
    Roomy, with steps of many tokens: only the combination can be refused."""
    random = Random(seed)
    wanted = {need for f in features for need in (*FEATURES[f].needs, *FEATURES[f].idle_without)}
    found: dict[Cluster, int] = {}
    for attempt in range(TRIES):
        if attempt >= FEW_TRIES and len(found) >= count:
            break
        also = frozenset(["unequal_block_sizes"] if random.random() < 0.2 else [])
        pair = "pd" in features | wanted or ("failures" in features and random.random() < 0.5)
        try:
            made = _cluster("combined", _settings(random, pair, features | also, alone=True))
            engines = tuple(replace(e, num_blocks=64, chunk_tokens=16) for e in made.engines)
            cluster = _with_jobs(replace(made, engines=engines), features)
        except UsageError:
            continue
        used = used_by(cluster)
        if used >= features:
            found.setdefault(cluster, len(used - features))
    return sorted(found, key=found.__getitem__)[:count]


def _with_jobs(cluster: Cluster, features: frozenset[str]) -> Cluster:
    """A job that uses these features, and its follow-up turn."""
    first = Job(
        "r0",
        "abcdefghi",
        embeds="embeddings" in features,
        parts=("jk",) if cluster.sessions else (),
        extra_key="salt" if cluster.extra_keys else "",
    )
    follows = cluster.follow_up_turns
    jobs = (first, replace(first, name="r1", follows="r0")) if follows else (first,)
    return cluster.carrying(*jobs)


def from_name(name: str) -> Cluster:
    """The cluster of a name like random:7. Raises UsageError where no seed follows."""
    seed = name.removeprefix(PREFIX)
    if not (seed.isascii() and seed.isdecimal()) or len(seed) > DIGITS_MAX:
        raise UsageError(
            f"{shown(name)} has no seed. Use {PREFIX} and a whole number of at most {DIGITS_MAX} "
            "digits."
        )
    return random_cluster(int(seed))


def _chosen(random: Random, pair: bool) -> frozenset[str]:
    """The features of a P/D pair or of a single engine."""
    first = frozenset(["pd"] if pair else [])
    features = [f.id for f in FEATURES.values() if f.draw and not f.chance]
    fitting = [feature for feature in features if _combine(first | {feature})]
    return first.union(random.sample(fitting, random.choice(CHOSEN)))


def _combine(features: frozenset[str]) -> bool:
    """Whether no exclusion without a condition forbids these features, and whether there is a P/D
    pair where a feature needs one."""
    apart = any(
        e.where is None and not e.live and together <= features for together, e in exclusions()
    )
    wanted = {need for f in features for need in (*FEATURES[f].needs, *FEATURES[f].idle_without)}
    return not apart and ("pd" in features or "pd" not in wanted)


def _settings(
    random: Random, pair: bool, chosen: frozenset[str], alone: bool = False
) -> RandomSettings:
    """Settings with the chosen features and, unless they are `alone`, those that join by chance."""
    layout = random.choice((*LAYOUTS, *RARE_LAYOUTS) if alone else LAYOUTS)
    size = random.choice(BLOCK_SIZES)
    settings = RandomSettings(random, pair, [_group(random, kind, size) for kind in layout])
    settings.on_engines(prefix_caching="state" not in layout)
    settings.on_cluster(load_failure=random.choice(("fail", "recompute")))
    others = () if alone else (f for f in FEATURES.values() if f.id != "pd")
    by_chance = [f.id for f in others if random.random() < f.chance]
    for feature in [*by_chance, *(f for f in FEATURES if f in chosen)]:
        draw = FEATURES[feature].draw
        if draw is not None:
            draw(settings)
    return settings


def _group(random: Random, kind: str, size: int) -> dict[str, Any]:
    if kind == "window":
        whole = (size * blocks for blocks in WINDOW_BLOCKS)
        windows = sorted({*WINDOWS, *(tokens for tokens in whole if tokens > 1)})
        return {"kind": kind, "block_size": size, "window": random.choice(windows)}
    if kind == "state":
        return {"kind": "mamba", "block_size": 4096, "mode": "none"}
    return {"kind": kind, "block_size": size}


def _cluster(name: str, settings: RandomSettings) -> Cluster:
    if not settings.pair:
        return Cluster(name, (_engine("E", "both", settings),), **settings.cluster)
    p, d = settings.kernel_blocks or (None, None)
    engines = _engine("P", "prefill", settings, p), _engine("D", "decode", settings, d)
    return Cluster(name, engines, **settings.cluster)


def _engine(
    name: str, role: Role, settings: RandomSettings, kernel_blocks: int | None = None
) -> EngineConfig:
    """An engine with these settings; `kernel_blocks` multiplies its attention block sizes. Where D
    alone caches nothing, no hit ends inside a state's block, so these are no wider than others."""
    fields = settings.engine | (settings.decode if role == "decode" else {})
    if kernel_blocks:
        fields["physical_per_logical"] = kernel_blocks
    groups = tuple(_widened(group, kernel_blocks or 1) for group in settings.groups)
    if fields["prefix_caching"] != settings.engine["prefix_caching"]:
        widest = max(g.block_size for g in groups if g.attention)
        groups = tuple(replace(g, block_size=widest) if g.aligned else g for g in groups)
    engine = EngineConfig(
        name,
        groups,
        settings.choose(POOLS),
        role,
        settings.choose(CHUNKS),
        **fields,
    )
    if settings.choose((True, False)):
        return engine
    needed = settings.choose(REQUESTS) * needed_blocks(engine, settings.choose(TIGHT_TOKENS))
    return replace(engine, num_blocks=1 + needed + settings.choose((0, 1, 2)))


def _widened(group: dict[str, Any], times: int) -> Group:
    wider = times if group["kind"] != "mamba" else 1
    return Group(**{**group, "block_size": group["block_size"] * wider})


def _roomy(engine: EngineConfig) -> bool:
    return needed_blocks(engine, TOKENS_LEAST) < engine.num_blocks
