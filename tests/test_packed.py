"""The packed search is the plain one."""

from collections.abc import Sequence

import pytest

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.packed import PackedSearch
from tests.breadth_first import search
from tests.cover import PRESETS, TENTH, others_nightly
from tests.planted import under

pytestmark = pytest.mark.exhaustive

ALL = list(INVARIANTS.values())


def assert_alike(cluster: Cluster, invariants: Sequence[Check]) -> None:
    """All states, edges and findings of the packed search of a scope are those of the plain search,
    and so are the checks that had nothing to judge. For scopes that the plain search can finish."""
    plain = search(cluster, invariants)
    packed = PackedSearch(cluster, invariants)
    while not packed.over:
        packed.expand()
    reached = packed.reached
    for name in ("states", "parents", "depths", "edges", "self_loops"):
        assert [*getattr(plain, name)] == [*getattr(reached, name)], name
    assert (plain.finding, plain.events) == (reached.finding, reached.events)
    assert plain.generated == reached.generated
    silent = [name for name in packed.asked if not plain.tally.judged[name]]
    when_packed = [name for name, times in packed.judged.items() if not times]
    assert plain.finding is not None or silent == when_packed


@pytest.mark.parametrize("name", others_nightly(CLUSTERS, PRESETS))
def test_the_packed_search_visits_the_same_states_as_a_plain_search(name: str) -> None:
    assert_alike(CLUSTERS[name], ALL)


@pytest.mark.parametrize("name", others_nightly(FAULTS, TENTH))
def test_the_packed_search_finds_a_fault_like_a_plain_search(name: str) -> None:
    fault = FAULTS[name]
    under([fault], assert_alike, CLUSTERS[fault.cluster], ALL)
