"""The explorer finds as many states in each preset as the preset says, and no mistake. That its
traces of faults are the shortest is asked by `test_killed_by`."""

import pytest

from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_number_of_distinct_states(name: str) -> None:
    outcome = explore(CLUSTERS[name])
    assert outcome.verdict is Verdict.EXHAUSTED
    assert outcome.coverage["states_distinct"] == CLUSTERS.file(name).distinct_states
