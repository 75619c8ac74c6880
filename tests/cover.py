"""Which presets and faults `make test` compares two engines on: few that together have everything.

Two searches, or a search and a walk backwards, are compared state by state. On each preset and each
fault that takes minutes and sees the same over and over, so the others are marked nightly: `make
nightly` compares on all of them.
"""

from collections.abc import Collection, Iterable, Mapping

import pytest
from _pytest.mark import ParameterSet

from kvproof.model.config.features.registry import used_by
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

BROKEN = covering(
    {name: fault.breaks for name, fault in FAULTS.items()},
    {name: STATES[fault.cluster] for name, fault in FAULTS.items()},
)
"""Each invariant that a fault breaks is broken by one of them."""

REFUTING = covering(
    {name: fault.all_refuted for name, fault in FAULTS.items()}, dict.fromkeys(FAULTS, 1)
)
"""Each claim about counts that a fault refutes is refuted by one of them. Under each fault all
claims are proved again, which takes seconds."""


def others_nightly(names: Iterable[str], quick: Collection[str]) -> list[ParameterSet]:
    """These names as parameters of a test; those that are not quick are marked nightly."""
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.nightly) for name in names
    ]


def once_each(pairs: Iterable[tuple[str, str]], quick: Collection[str]) -> list[ParameterSet]:
    """Pairs of a fault and what it refutes, as parameters; all but the first of each quick fault
    are marked nightly."""
    seen: set[str] = set()
    made = []
    for fault, name in pairs:
        made.append(
            pytest.param(
                fault,
                name,
                marks=pytest.mark.nightly if fault in seen or fault not in quick else (),
            )
        )
        seen.add(fault)
    return made
