"""This module numbers the work units of a campaign. A unit depends on its number, on the seed, and
on what the units found that are long before it.

The runs of an earlier campaign are followed in an order in which those that show much come early.
This is how regression tests are put in order ("additional greedy" prioritisation). A step counts
again where another run has shown it, though less: a mistake may need more than the step.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from itertools import count
from math import ceil
from random import Random

from kvproof.campaign.planned import ENGINES
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import CorpusEntry, Unit
from kvproof.gate.difference.workload import Engines, Episodes, Plays
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import modelled
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.model.presets.room import roomy
from kvproof.strategies.sampling.wide import ROOMY, SEEDS

MEAN_STEPS = 45
"""Steps of a unit on average."""

CHOICES = 40
"""Choices in a random episode."""

AT_ONCE, AT_ONCE_MAX = 4, 128
"""The number of units that may be carried out at once: of the first ones, and at most."""

OTHERS_EVERY = 4
"""At first all presets come, each once: few steps of one show what it is for. One of this number
of units takes another cluster."""

PLANS_EVERY = 5
"""On live vLLM, one of this number of units has plans: of a connector, or of engine cores."""

PLANS = 5
"""Plans of a unit."""

FOLLOWED = 3
"""Entries of an earlier campaign that one unit takes as they are. Every second unit does so as long
as there are some: three of four steps. What they do not show, the rest may."""


def knows(number: int) -> int:
    """Return of how many of the first units a unit knows the findings: their runs need not be made
    shorter any more. It may begin before the later ones are finished. At first, when most findings
    are new, it knows those of nearly half."""
    return max(number - max(AT_ONCE, min(number // 2, AT_ONCE_MAX)), 0)


class Plan:
    """Make the units of one campaign. `given` are entries of an earlier campaign."""

    def __init__(self, seed: int, live: bool, given: Sequence[CorpusEntry] = ()) -> None:
        self.seed, self.live = seed, live
        self.given = dense_first(given)
        self.following = ceil(len(given) / FOLLOWED)
        self.presets = [*CLUSTERS, *(LIVE_CLUSTERS if live else ())]
        Random(seed).shuffle(self.presets)
        self.planned = [ENGINES, *(n for n, each in SHIPPED.items() if not each.dummy)]
        Random(seed).shuffle(self.planned)

    def unit(self, number: int, progress: Progress) -> Unit:
        """Return the unit of this number."""
        known = progress.known(knows(number))
        seed = Random(f"{self.seed}:{number}").getrandbits(62)
        turn, second = divmod(number, 2)
        if turn < self.following and not second:
            given = self.given[turn * FOLLOWED : (turn + 1) * FOLLOWED]
            return Unit(number, tuple(given), known)
        place = turn if turn < self.following else number - self.following
        preset = min(place - ceil(place / OTHERS_EVERY), len(self.presets))
        if place % OTHERS_EVERY and preset < len(self.presets):
            return Unit(number, _fresh(cluster_named(self.presets[preset]), seed), known)
        turn = place - preset
        if self.live and turn % PLANS_EVERY == PLANS_EVERY - 1:
            return Unit(number, self.plans(turn // PLANS_EVERY, seed), known)
        return Unit(number, _fresh(self.cluster(turn), seed), known)

    def plans(self, number: int, seed: int) -> Plays | Engines:
        """Return the plans of a unit: one connector after the other, and engine cores."""
        name = self.planned[number % len(self.planned)]
        if name == ENGINES:
            return Engines(name, seed, 2 * PLANS)
        return Plays(name, name, seed, PLANS)

    def cluster(self, number: int) -> Cluster:
        """Return the cluster of a fresh unit: a preset or a random cluster, one after the other,
        and some of both with room."""
        has_room = not Random(f"{self.seed}:{number}").randrange(ROOMY)
        cluster = self._named(number)
        return roomy(cluster) if has_room else cluster

    def _named(self, number: int) -> Cluster:
        if number % 2 == 0:
            return cluster_named(self.presets[number // 2 % len(self.presets)])
        first = self.seed * SEEDS + number // 2
        for name in (f"random:{first + again * SEEDS // 97}" for again in count()):
            cluster = cluster_named(name)
            if self.live or modelled(cluster):
                return cluster
        raise AssertionError


def _fresh(cluster: Cluster, seed: int) -> Episodes:
    """Make the work of a fresh unit: one episode, as the next episode of a cluster shows less than
    the first one of another."""
    return Episodes(cluster.name, cluster, seed, 1, CHOICES)


BESIDE_EVENTS = 40
"""What a run costs beside its events, in events. Without it the shortest runs would come first, in
which little meets: kept runs have 60 events."""


def dense_first(corpus: Sequence[CorpusEntry]) -> list[CorpusEntry]:
    """Order the entries: next comes always the one that shows the most abstract steps for its
    length. A step that n entries before it show counts 1 / (1 + n)."""
    times: Counter[str] = Counter()

    def cost(index: int) -> float:
        """The opposite of what an entry shows now. It never falls while `times` grows."""
        entry = corpus[index]
        return -sum(1 / (1 + times[each]) for each in entry.shows) / (
            BESIDE_EVENTS + len(entry.events)
        )

    heap = [(cost(index), index) for index in range(len(corpus))]
    heapify(heap)
    order = []
    while heap:
        before, index = heap[0]
        now = cost(index)
        if now > before:
            heapreplace(heap, (now, index))
        else:
            heappop(heap)
            order.append(corpus[index])
            times.update(corpus[index].shows)
    return order
