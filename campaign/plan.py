"""This module numbers the work units of a campaign. A unit depends on its number, on the seed, and
on what earlier rounds found.

A unit of round n knows the findings of the rounds up to n-2, whose runs need not be made shorter
any more: so workers go on while the last units of round n-1 are not finished. The first rounds are
short, because most findings are new there.

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

ROUND_MAX = 64
"""Units of a round, after the first rounds."""

FIRST_ROUND = 4

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


def round_sizes() -> list[int]:
    """Return the sizes of the first rounds; all later ones have the last size."""
    sizes = [FIRST_ROUND]
    while sizes[-1] < ROUND_MAX:
        sizes.append(sizes[-1] * 2)
    return sizes


def round_of(number: int) -> tuple[int, int]:
    """Return the round of a unit, and the number of the first unit after this round."""
    end = 0
    sizes = round_sizes()
    for index, size in enumerate(sizes):
        end += size
        if number < end:
            return index, end
    more = (number - end) // ROUND_MAX
    return len(sizes) + more, end + (more + 1) * ROUND_MAX


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
        known = progress.known(round_of(number)[0] - 1)
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
