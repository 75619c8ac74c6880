"""Hypothesis drives live vLLM: green but for the listed findings.

Runs on each release that the model runs beside; other tests want the one that is tested in full.
"""

import dataclasses

import pytest
from hypothesis import settings

from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.stateful import check_machine

pytestmark = [pytest.mark.stateful, pytest.mark.live]

SCOPES = {dataclasses.replace(c, name="", jobs=()): name for name, c in CLUSTERS.items()}
"""Presets that differ in more than their jobs, which are drawn here."""

SHARE = 6


@pytest.mark.parametrize("name", SCOPES.values())
def test_live_vllm_does_only_what_the_model_with_the_listed_faults_does(name: str) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    faults = deviations(availability.installed())
    machines: list[Shadowed] = []

    def make(cluster: Cluster) -> Shadowed:
        machines.append(Shadowed(LiveMachine(cluster), faults))
        return machines[-1]

    check_machine(make, CLUSTERS[name], examples=max(settings().max_examples // SHARE, 5))
    assert sum(len(m.steps) for m in machines) > 0
