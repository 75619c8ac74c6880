"""Where the search goes beside its traces and presets: to clusters that execute what was not
executed, to those that execute the rarest change, and to those in which both sides differ."""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Engines, Episodes, Follow, Plays, Workload
from kvproof.gate.search import scouts, search, workloads
from kvproof.gate.search.further import PARTS, PARTS_IN_ALL, Differing, Further, WithGroups
from kvproof.gate.search.reaching import Reaching
from kvproof.gate.search.scouts import SCOUTS
from kvproof.gate.source.parts import CONNECTORS
from kvproof.model.config.features.registry import used_by
from kvproof.model.presets import CLUSTERS
from tests.fake_sides import CRASH, OTHER, RUN, SOME, compared, nothing, shows
from tests.test_search import changing, searching
from tests.two_machines import driven, result, taken

RARE = "x"
"""A changed statement that one cluster executes."""

LAST = f"random:{scouts.FIRST + SCOUTS // 4 + 1}"
"""A cluster that is looked at; it has no more room than it was drawn with."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "of_findings", lambda: [RUN])
    monkeypatch.setattr(workloads, "of_faults", lambda: [OTHER])
    monkeypatch.setattr(search, "UNSEEN_MAX", 1.0)


def cluster(each: Workload) -> str:
    """The name of its cluster; none where it has no cluster."""
    return each.cluster.name if isinstance(each, Episodes | Follow) else ""


def side(*rare_on: str) -> Callable[[Workload], Result]:
    """A side that executes the change, and the rare statement on these clusters alone."""

    def does(each: Workload) -> Result:
        rare = (RARE,) * (cluster(each) in rare_on)
        return result(each.name, reached=(SOME, *rare))

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
        made = searching(found, changes=changing(SOME, part=CONNECTORS if connected else ""))
        assert made.reaches() is not connected
        assert bool(made.scouts.found) is not connected


def test_what_only_an_engine_core_reaches_is_reached() -> None:
    """It may have layers that no cluster has: rings, and those of other precisions."""

    def does(each: Workload) -> Result:
        return result(each.name, reached=(SOME,) * isinstance(each, Engines))

    with compared(does, does) as found:
        made = searching(found)
        assert made.reaches()
        assert made.engines
        assert not made.by_traces


def test_what_cannot_be_driven_is_not_found() -> None:
    def cannot(each: Workload) -> Result:
        return Result(each.name, reason="This vLLM has no x", reached=(RARE,))

    with compared(nothing, cannot) as found:
        made = searching(found).scouts
        made.look({RARE})
        assert not made.take()


def test_for_what_only_a_connector_can_execute_no_cluster_is_looked_at() -> None:
    save = "v1/other.py:save"
    changes = changing(SOME, save, statements=(SOME, RARE))
    own, of_connector = changes.accounting
    of_connector = of_connector._replace(part=CONNECTORS)
    changes = changes._replace(accounting=(own._replace(statements=(SOME,)), of_connector))
    turns = iter(range(200))

    def does(each: Workload) -> Result:
        return result(each.name, reached=(SOME,))

    with compared(nothing, does) as found:
        made = searching(found, changes=changes, fails=lambda: next(turns, None) is None)
        made.by_traces = True
        made.run()
        assert made.scouts.left == SCOUTS


WHERE = "full"
SHOWN_LAST = f"episodes like episodes of {WHERE}, part 3"


def acting(workload: Workload) -> Result:
    """The change acts in one preset, and breaks something in few of its episodes."""
    of_it = isinstance(workload, Episodes) and workload.cluster.name == WHERE
    breaks = (CRASH,) if workload.name == SHOWN_LAST else ()
    return replace(nothing(workload), records=(taken(int(of_it)),), breaks=breaks)


def test_the_search_does_not_end_before_the_clusters_in_which_they_differ_were_driven() -> None:
    with compared(shows(records=(taken(),), reached=(SOME,)), acting) as found:
        searching(found, fails=lambda: SHOWN_LAST in found.names).run()
    like = [name for name in found.names if name.startswith("episodes like")]
    assert like[:3] == [f"episodes like episodes of {WHERE}, part {n}" for n in (1, 2, 3)]


def test_machines_that_make_other_choices_are_unlike_and_equal_ones_are_alike() -> None:
    drawn = Episodes("drawn", CLUSTERS["full"], seed=7, episodes=4, steps=20)
    one, again, other = driven(drawn), driven(drawn), driven(drawn, ["double_free"])

    def unlike(result: Result) -> bool:
        return any(pair.parts_at is not None for pair in pairs(one, result))

    assert not unlike(again)
    assert unlike(other)
    assert not unlike(replace(other, reason="This vLLM has no x"))


BOTH = ("full", "full+mamba")
PLANS = Plays("plans", "offloading", kinds="")


def test_cache_groups_in_which_a_connector_acts_have_further_plans_and_only_these() -> None:
    def one(each: Workload) -> Result:
        return replace(nothing(each), records=(taken(1), taken(2)), kinds=BOTH)

    def other(each: Workload) -> Result:
        return replace(nothing(each), records=(taken(1), taken(3)), kinds=BOTH)

    with compared(one, other) as found:
        found.drive([PLANS])
        made = Differing(found, Further(0))
        further = made.take(PARTS_IN_ALL[WithGroups])
        found.drive(further)  # they differ, too, in the same cache groups
        assert [each.kinds for each in further] == ["full+mamba"] * PARTS[WithGroups]
        assert len({each.seed for each in further}) == PARTS[WithGroups]
        assert not made.take(1)


RARE, COMMON = "a.py:rare", "a.py:common"


def executing(feature: str) -> Callable[[Workload], Result]:
    """One function is executed in clusters with a feature alone, the other in all."""

    def run(workload: Workload) -> Result:
        rare = isinstance(workload, Episodes) and feature in used_by(workload.cluster)
        return replace(nothing(workload), watched=True, reached=(COMMON, *(RARE,) * rare))

    return run


def has(feature: str, chosen: Iterator[Episodes], number: int) -> int:
    return sum(feature in used_by(each.cluster) for each in islice(chosen, number))


def test_clusters_that_execute_the_rarest_change_are_driven_further_the_least_driven_first() -> (
    None
):
    with compared(executing("windows"), executing("windows")) as found:
        found.drive(workloads.of_presets(0)[:12])
        made = Reaching(found, Further(0), (COMMON, RARE))
        taken = made.take(40)
    wanted = {
        e.cluster.name for e in workloads.of_presets(0)[:12] if "windows" in used_by(e.cluster)
    }
    assert {each.cluster.name for each in taken} == wanted
    assert len({each.name for each in taken}) == len(taken) == 40
    parts = [[each.cluster.name for each in taken].count(name) for name in wanted]
    assert max(parts) - min(parts) <= 1


def test_random_clusters_that_are_like_these_are_chosen() -> None:
    feature = "eagle"
    with compared(executing(feature), executing(feature)) as found:
        found.drive([*workloads.of_presets(0), *islice(workloads.of_random_clusters(0), 40)])
        made = Reaching(found, Further(0), (COMMON, RARE))
        chosen = [*islice(made.alike(workloads.of_random_clusters(1)), 20)]
    assert len({each.name for each in chosen}) == 20
    assert has(feature, iter(chosen), 20) >= 15
    assert has(feature, workloads.of_random_clusters(1), 20) < 8


def test_where_nothing_executes_a_change_nothing_is_near() -> None:
    with compared(nothing, nothing) as found:
        found.drive(workloads.of_presets(0)[:3])
        made = Reaching(found, Further(0), (RARE,))
        assert made.take(4) == []
        assert len([*islice(made.alike(workloads.of_random_clusters(1)), 4)]) == 4
