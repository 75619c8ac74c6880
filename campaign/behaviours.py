"""A behaviour is what a run shows, in words without names and numbers of requests and blocks.

A behaviour is an abstract step, two abstract steps one after the other, a hit that earlier prompts
did not have, a known finding of vLLM, or what the plan of a
connector, of a start-up or of a loop shows. A trace is kept for a behaviour that was not seen
before. Mistakes are often of one kind of cache group, so the kinds of groups belong to a behaviour.

What a run stores is of use only if a later prompt finds it. So the hits say how often a beginning
had to come until it was found in the cache. Which blocks it takes depends on the cache groups and
on some features of the cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import used_by
from kvproof.model.step import Admission, Step
from kvproof.strategies.sampling.abstract_steps import abstract_steps

STEP, PAIR, HIT, KNOWN, PLAN = "step", "pair", "hit", "known", "plan"


def kind(behaviour: str) -> str:
    """Return the kind of a behaviour: `step`, `pair`, `hit`, `known` or `plan`."""
    return behaviour.partition(" ")[0]


def behaviours(cluster: Cluster, steps: Sequence[Step], met: Iterable[str] = ()) -> Iterator[str]:
    """Return the behaviours of a run, some of them several times. `met` are the known findings."""
    kinds = "+".join(sorted({g.kind for e in cluster.engines for g in e.groups}))
    where = f"{'P/D ' if cluster.disaggregated else ''}{kinds}"
    each_step = [list(dict.fromkeys(abstract_steps(cluster, step))) for step in steps]
    for step in each_step:
        yield from (f"{STEP} {where}: {name}" for name in step)
    for first, second in pairwise(each_step):
        yield from (f"{PAIR} {where}: {a}, then {b}" for a, b in product(first, second))
    yield from (f"{HIT} {kinds}, {name}" for name in hits(cluster, steps))
    yield from (f"{KNOWN} {where}: {name}" for name in met)


def steps_among(behaviours: Iterable[str]) -> tuple[str, ...]:
    """Return the abstract steps among these behaviours, without the kinds of cache groups."""
    return tuple(each.partition(": ")[2] for each in behaviours if kind(each) == STEP)


DEPENDS = {
    "drafts",
    "eagle",
    "hash_lookahead",
    "partial_block_hits",
    "prefix_checkpoint",
    "retention",
}
"""The features that decide which blocks are stored, or which of them a hit takes."""


def hits(cluster: Cluster, steps: Sequence[Step]) -> Iterator[str]:
    """Return the hits of a run that no earlier prompt had, though it begins with the same tokens:
    one line for each of the features."""
    features = sorted(DEPENDS & used_by(cluster)) or ["none"]
    came: defaultdict[str, dict[str, Admission]] = defaultdict(dict)
    for admission in (each for step in steps for each in step.effects.admissions):
        earlier = came[admission.engine]
        if admission.request in earlier:
            continue  # it was preempted, and finds its own blocks
        hit = admission.tokens[: admission.hit]
        alike = [each for each in earlier.values() if hit and each.tokens.startswith(hit)]
        if alike and all(each.hit < admission.hit for each in alike):
            whole = any(admission.tokens.startswith(each.tokens) for each in alike)
            time = "second" if len(alike) == 1 else "third or a later"
            for feature in features:
                yield f"{feature}: a {'prompt' if whole else 'beginning'} hits the {time} time"
        earlier[admission.request] = admission
