"""The workloads of a comparison, in the order in which they are driven if nothing else decides."""

from collections.abc import Iterable, Iterator
from itertools import count

from kvproof.gate.difference.workload import (
    Again,
    Engine,
    Engines,
    Episodes,
    Follow,
    Play,
    Plays,
    Random,
    Workload,
    follow,
)
from kvproof.live.known import traces
from kvproof.model.config import Cluster
from kvproof.model.faults.registry import FAULTS
from kvproof.model.plans.config_options import ConfigOption
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.model.presets.room import SUFFIX, roomy
from kvproof.strategies.sampling.wide import ROOMY, SEEDS
from kvproof.strategies.witnesses import witnesses

EPISODES = 6
"""The number of random runs of one kind in one workload."""

PLAYS = 40
"""The number of random plans of a connector in one workload."""

LOOKED_PLAYS = 12
"""The number in the first one, which shows what a connector reaches: that takes longer."""

ENGINES = 80
"""The number of random engines in one workload."""

STEPS = 30
"""The number of choices in an episode."""

OTHERS = 1_000
"""Further episodes of a cluster differ from its first ones, unless there are very many."""

LOOKS = 600_000
"""The plans of looks differ from all others."""


def of_findings() -> list[Follow]:
    """The traces of past findings, a workload each, which has the name of its finding."""
    return [
        follow(trace.cluster, f"finding {name}", trace.events) for name, trace in traces.all_of()
    ]


def of_faults() -> list[Follow]:
    """The shortest runs of the model that show the faults."""
    return [
        follow(
            w.cluster, f"fault {w.fault.name}, {w.finding.invariant} on {w.cluster.name}", w.events
        )
        for w in witnesses(FAULTS.values())
    ]


def of_presets(seed: int) -> list[Episodes]:
    """Random episodes of every preset."""
    return [_episodes(name, seed) for name in (*CLUSTERS, *LIVE_CLUSTERS)]


def of_random_clusters(seed: int, first: int = 0) -> Iterator[Episodes]:
    """Random episodes of random clusters, without end, from the one with this number on. Some of
    them have room."""
    for number in count(seed * SEEDS + first):
        yield _episodes(f"random:{number}{'' if number % ROOMY else SUFFIX}", seed)


def near(workload: Workload, name: str, seed: int, part: int, number: int = EPISODES) -> Random:
    """So many random runs of the kind of a workload: of its cluster, with the jobs that it has; of
    its connector, with the cache groups of its plan, or groups of these kinds; of an engine core,
    with its kinds of layers. Each `part` has others."""
    apart = seed * SEEDS + OTHERS + part
    if isinstance(workload, Follow | Episodes | Again):
        return Episodes(name, workload.cluster, apart, number, STEPS)
    if isinstance(workload, Play):
        return Plays(name, workload.connector, apart, number, like=workload.plan)
    if isinstance(workload, Plays):
        options = workload.config_options
        return Plays(
            name, workload.connector, apart, number, kinds=workload.kinds, config_options=options
        )
    if isinstance(workload, Engine):
        return Engines(name, apart, number, workload.plan)
    options, about = workload.config_options, workload.about
    return Engines(name, apart, number, workload.like, options, about=about)


def of_cluster(cluster: Cluster, seed: int, part: int) -> Episodes:
    """Random episodes of a cluster. Each `part` has others, and some of them room."""
    cluster = cluster if (part + 1) % ROOMY else roomy(cluster)
    name = f"episodes of {cluster.name}, part {part + 1}"
    return Episodes(name, cluster, seed * SEEDS + part, EPISODES, STEPS)


def of_connectors(
    names: Iterable[str], seed: int, part: int, about: tuple[str, ...] = (), *, look: bool = False
) -> list[Plays]:
    """Random plans for each of these connectors: for a `look` a few, which no search has. Each
    `part` has others, and every other one is `about` some cache groups alone."""
    which = f", {'look' if look else 'part'} {part + 1}" if part else ""
    about, number = about if part % 2 else (), LOOKED_PLAYS if look else PLAYS
    drawn = seed * SEEDS + part + LOOKS * look
    return [Plays(f"plans for {name}{which}", name, drawn, number, about=about) for name in names]


def of_engines(seed: int, part: int = 0, about: str = "") -> Engines:
    """Random engines that start, most with messages to their loops; all with models of a kind, if
    they are `about` one. Each `part` has others."""
    name = "engines" + f" ({about})" * bool(about) + (f", part {part + 1}" if part else "")
    return Engines(name, seed * SEEDS + part, ENGINES, about=about)


def with_option(option: ConfigOption, connectors: Iterable[str], seed: int) -> Iterator[Random]:
    """Random engines with an option that kvproof does not model, and plans for these connectors;
    with a setting of connectors the plans alone."""
    name, chosen = f"with {option.words}", (option,)
    if option.of != "connector":
        yield Engines(f"engines {name}", seed * SEEDS + OTHERS, ENGINES, config_options=chosen)
    for each in connectors:
        called = f"plans for {each} {name}"
        yield Plays(called, each, seed * SEEDS + OTHERS, PLAYS, config_options=chosen)


def _episodes(cluster: str, seed: int) -> Episodes:
    name = f"episodes of {cluster}"
    return Episodes(name, cluster_named(cluster), seed * SEEDS, EPISODES, STEPS)
