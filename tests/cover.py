"""Which presets and faults `make test` looks at more than once.

`test_killed_by` explores every fault. What asks the same again (Hypothesis, traces, conformance, a
comparison of two searches state by state) takes few in `make test`, which together have everything,
and all of them in `make nightly`.
"""

from collections.abc import Collection, Iterable, Mapping

import pytest
from _pytest.mark import ParameterSet

from kvproof.model.config.features.registry import used_by
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS

STATES = {name: CLUSTERS.file(name).distinct_states for name in CLUSTERS}


def covering(parts: Mapping[str, Collection[str]], states: Mapping[str, int]) -> set[str]:
    """Names that together have all parts, chosen one by one: the most new parts for a state."""
    left = {part for each in parts.values() for part in each}
    chosen: set[str] = set()
    while left:
        new = {name: len(left.intersection(each)) for name, each in parts.items()}
        best = max(parts, key=lambda name: (new[name] / states[name], name))
        chosen.add(best)
        left.difference_update(parts[best])
    return chosen


PRESETS = covering({name: used_by(CLUSTERS[name]) for name in CLUSTERS}, STATES)
"""Each feature that a preset uses is used by one of them."""


def topic(fault: Fault) -> str:
    """The topic of a fault: the module that declares it."""
    return next(iter(fault.replaces.values())).__module__


TENTH = {
    min((STATES[each.cluster], name) for name, each in FAULTS.items() if topic(each) == one)[1]
    for one in map(topic, FAULTS.values())
}
"""Of each topic the fault with the smallest preset: a tenth of all."""


def others_nightly(names: Iterable[object], quick: Collection[object]) -> list[ParameterSet]:
    """These names as parameters of a test; those that are not quick are marked nightly."""
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.nightly) for name in names
    ]
