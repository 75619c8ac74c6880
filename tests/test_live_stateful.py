"""Hypothesis drives live vLLM: green but for the known findings, and every step is one that the
proofs speak of.

Runs on each release that is driven; other tests want the one that is tested in full.
"""

import pytest
from hypothesis import settings
from msgspec.structs import replace

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.count_conformance import conformance_checks
from tests.cover import PRESETS, others_nightly
from tests.driving import check_machine
from tests.planted import asked_under
from tests.watching import Counting, is_later, is_undriven, known_faults, watched

pytestmark = [pytest.mark.stateful, pytest.mark.live]

SCOPES = {replace(c, name="scope", jobs=()): name for name, c in CLUSTERS.items()}
"""Presets that differ in more than their jobs, which are drawn here."""

SHARE = 10


EVERYWHERE = [name for name in SCOPES.values() if not is_later(CLUSTERS[name])]
LATER = [name for name in SCOPES.values() if is_later(CLUSTERS[name])]


def drive(name: str) -> None:
    machines: list[Counting] = []

    def make(cluster: Cluster) -> Counting:
        machines.append(watched(cluster))
        return machines[-1]

    checks = (*CHECKS.values(), *asked_under(known_faults(CLUSTERS[name]), conformance_checks()))
    check_machine(CLUSTERS[name], make, checks, max(settings().max_examples // SHARE, 5))
    assert sum(machine.judged for machine in machines) > 0


@pytest.mark.parametrize("name", others_nightly(EVERYWHERE, PRESETS))
def test_live_vllm_satisfies_the_spec_but_for_the_known_findings(name: str) -> None:
    drive(name)


@pytest.mark.parametrize("name", LATER)
def test_a_feature_of_a_later_release_satisfies_the_spec_or_is_unknown(name: str) -> None:
    if not is_undriven(CLUSTERS[name]):
        drive(name)
