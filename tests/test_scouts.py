"""Clusters that are only looked at, for what no run executed. The sides are made by hand."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Follow, Workload
from kvproof.gate.search import scouts, workloads
from kvproof.gate.search.scouts import SCOUTS
from tests.fake_sides import OTHER, RUN, SOME, compared, nothing
from tests.test_search import changing, searching
from tests.two_machines import result

RARE = "x"
"""A changed statement that one cluster executes."""

LAST = f"random:{scouts.FIRST + SCOUTS // 4 + 1}"
"""A cluster that is looked at; it has no more room than it was drawn with."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "of_findings", lambda: [RUN])
    monkeypatch.setattr(workloads, "of_faults", lambda: [OTHER])


def cluster(each: Workload) -> str:
    """The name of its cluster; none where it has no cluster."""
    return each.cluster.name if isinstance(each, Episodes | Follow) else ""


def side(*rare_on: str) -> Callable[[Workload], Result]:
    """A side that knows the change, and executes the rare statement on these clusters alone."""

    def does(each: Workload) -> Result:
        rare = (RARE,) * (cluster(each) in rare_on)
        made = result(each.name, reached=(SOME, *rare))
        return replace(made, near={SOME: Near(1000, {"a": 1000})})

    return does


def test_a_cluster_that_executes_what_is_left_is_found_and_driven() -> None:
    with compared(nothing, side(LAST)) as found:
        made = searching(found, changes=changing(SOME, statements=(SOME, RARE)))
        made.run()
    assert f"episodes of {LAST}" in found.names
    assert not any(name.startswith("a look") for name in found.names)
    assert SCOUTS // 2 < made.scouts.left < SCOUTS  # nothing is missing any more


@pytest.mark.parametrize("connected", [False, True])
def test_what_only_a_random_cluster_reaches_is_reached(connected: bool) -> None:
    """Code of connectors alone needs plans, so no cluster is looked at."""

    def does(each: Workload) -> Result:
        return result(each.name, reached=(SOME,) * (cluster(each) == LAST))

    with compared(does, does) as found:
        made = searching(found, connected=[SOME] * connected)
        assert made.reaches() is not connected
        assert bool(made.scouts.found) is not connected


def test_what_only_a_connector_can_execute_does_not_hold_the_search_up() -> None:
    """No cluster is looked at for it, and the search ends by itself."""
    save = "v1/other.py:save"
    changes = changing(SOME, save, statements=(SOME, RARE))
    own, of_connector = changes.accounting
    changes = changes._replace(accounting=(own._replace(statements=(SOME,)), of_connector))
    turns = iter(range(10_000))

    def does(each: Workload) -> Result:
        known = Near(1000, {"a": 1000})
        return replace(result(each.name, reached=(SOME,)), near={SOME: known, save: known})

    with compared(nothing, does) as found:
        made = searching(
            found, changes=changes, connected=[save], fails=lambda: next(turns, None) is None
        )
        made.by_traces = True
        made.run()
        assert made.scouts.left == SCOUTS
    assert next(turns, None) is not None
