"""Hypothesis drives live vLLM: green but for the listed findings, and every one of those is
seen."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import settings

from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.stateful import check_machine

pytestmark = [pytest.mark.stateful, pytest.mark.live]

SCOPES = {dataclasses.replace(c, name="", jobs=()): name for name, c in CLUSTERS.items()}
"""Presets that differ in more than their jobs, which are drawn here."""

SHARE = 4
explained: Counter[str] = Counter()
driven: set[str] = set()


@pytest.mark.parametrize("name", SCOPES.values())
def test_live_vllm_does_only_what_the_model_with_the_listed_faults_does(name: str) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    faults = deviations(availability.check())
    machines: list[Shadowed] = []

    def make(cluster: Cluster) -> Shadowed:
        machines.append(Shadowed(LiveMachine(cluster), faults))
        return machines[-1]

    check_machine(make, CLUSTERS[name], examples=max(settings().max_examples // SHARE, 5))
    assert sum(len(m.steps) for m in machines) > 0
    for machine in machines:
        explained.update(machine.explained)
    driven.add(name)


def test_every_listed_finding_was_seen_again() -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations

    if driven != set(SCOPES.values()):
        pytest.skip("only some of the presets were driven, by selection")
    for fault in deviations(availability.check()):
        assert any(explained[i] for i in fault.breaks), f"{fault.name} was not seen: is it mended?"
