"""The order in which the runs of an earlier campaign are followed: those that show much come early.

This is how regression tests are put in order ("additional greedy" prioritisation). A step counts
again where another run has shown it, though less: a mistake may need more than the step.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from kvproof.campaign.unit import CorpusEntry

BESIDE_EVENTS = 40
"""What a run costs beside its events, in events. Without it the shortest runs would come first, in
which little meets: kept runs have 60 events."""


def dense_first(corpus: Sequence[CorpusEntry]) -> list[CorpusEntry]:
    """The entries, each time the one that shows the most abstract steps for its length. A step that
    n entries before it show counts 1 / (1 + n). Entries of older campaigns do not say what they
    show: they come last, in the order in which they were found."""
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
