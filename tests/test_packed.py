"""The packed search is the plain one, and its gate says so when it is not."""

from collections.abc import Sequence

import pytest

from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.faults.registry import FAULTS
from kvproof.model.ghost_state import EMPTY
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Engine
from kvproof.strategies.explorer.collapse import Collapse
from kvproof.strategies.explorer.packed import PackedSearch
from tests.breadth_first import search
from tests.cover import PRESETS, TENTH, others_nightly
from tests.planted import under

pytestmark = pytest.mark.exhaustive

ALL = list(INVARIANTS.values())

ALIKE = ("states", "parents", "depths", "edges", "self_loops", "finding", "events")


def packed_differs(
    cluster: Cluster, invariants: Sequence[Check], *, states_max: int = 20_000
) -> str | None:
    """The first difference between the packed search of a scope and the plain search; None if all
    states, edges and findings are equal, and the checks that had nothing to judge. For scopes that
    the plain search can finish."""
    plain = search(cluster, invariants, states_max)
    packed = PackedSearch(cluster, invariants)
    while not packed.over and len(packed.reached.parts) <= states_max:
        packed.expand()
    for name in ALIKE:
        ours, theirs = getattr(plain, name), getattr(packed.reached, name)
        if isinstance(ours, list):
            if len(ours) != len(theirs):
                return f"there are {len(ours)} {name}, and {len(theirs)} when packed"
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if one != other:
                    return f"number {number} of the {name} is {one}, and {other} when packed"
        elif ours != theirs:
            return f"the {name} are {ours}, and {theirs} when packed"
    if plain.generated != packed.reached.generated:
        return f"{plain.generated} steps were taken, and {packed.reached.generated} when packed"
    silent = [name for name in packed.asked if not plain.tally.judged[name]]
    when_packed = [name for name, times in packed.judged.items() if not times]
    if plain.finding is None and silent != when_packed:
        return f"{silent} had nothing to judge, and {when_packed} when packed"
    return None


@pytest.mark.parametrize("name", others_nightly(CLUSTERS, PRESETS))
def test_the_packed_search_visits_the_same_states_as_a_plain_search(name: str) -> None:
    assert packed_differs(CLUSTERS[name], ALL) is None


@pytest.mark.parametrize("name", others_nightly(FAULTS, TENTH))
def test_the_packed_search_finds_a_fault_like_a_plain_search(name: str) -> None:
    fault = FAULTS[name]
    assert under([fault], packed_differs, CLUSTERS[fault.cluster], ALL) is None


def test_a_codec_that_forgets_something_turns_the_gate_red(monkeypatch: pytest.MonkeyPatch) -> None:
    number = Collapse.number

    def forgetful(self: Collapse, component: object) -> int:
        if isinstance(component, Engine):
            component = component._replace(ghost=EMPTY)
        return number(self, component)

    monkeypatch.setattr(Collapse, "number", forgetful)
    assert packed_differs(CLUSTERS["pd-hitting"], []) is not None
