"""Clusters in which base and head behave differently are driven further."""

import time

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Plays, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.differing import PARTS, PARTS_IN_ALL, Differing, unlike
from kvproof.gate.search.differing_plans import PARTS as PLAN_PARTS
from kvproof.gate.search.differing_plans import PARTS_IN_ALL as PLAN_PARTS_IN_ALL
from kvproof.gate.search.differing_plans import DifferingPlans
from kvproof.gate.search.further import Further
from kvproof.gate.search.search import Search
from kvproof.gate.source.changes import ChangedFunction, Changes
from kvproof.model.presets import CLUSTERS
from tests.fake_sides import CRASH, RUN, SOME, compared, nothing
from tests.two_machines import driven, result

WHERE = "full"
LAST = f"episodes like episodes of {WHERE}, part 3"


def acting(workload: Workload) -> Result:
    """The change acts in one preset, and breaks something in few of its episodes."""
    of_it = isinstance(workload, Episodes) and workload.cluster.name == WHERE
    breaks = (CRASH,) if workload.name == LAST else ()
    near = {SOME: Near(1000, {"a": 1000})}
    return replace(nothing(workload), near=near, digest=int(of_it), breaks=breaks)


def test_the_search_does_not_end_before_the_clusters_in_which_they_differ_were_driven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workloads, "of_findings", lambda: [RUN])
    monkeypatch.setattr(workloads, "of_faults", list)
    with compared(nothing, acting) as found:
        changed = ChangedFunction(*SOME.split(":"), 1, 9, "changed")
        made = Search(
            found,
            Changes((changed,), ()),
            until=time.monotonic() + 6000,
            fails=lambda: LAST in found.names,
            show=lambda _text: None,
        )
        made.run()
    like = [name for name in found.names if name.startswith("episodes like")]
    assert like[:3] == [f"episodes like episodes of {WHERE}, part {n}" for n in (1, 2, 3)]


def test_each_such_cluster_has_some_workloads_and_all_together_no_more_than_a_number() -> None:
    few, all_of_them = workloads.of_presets(0)[:2], workloads.of_presets(0)[:30]
    for presets, number in ((few, 2 * PARTS), (all_of_them, PARTS_IN_ALL)):
        with compared(nothing, lambda each: replace(nothing(each), digest=1)) as found:
            found.drive(presets)
            made = Differing(found, Further(0))
            taken = made.take(PARTS_IN_ALL)
            names = [each.name for each in taken]
            found.drive(taken)  # they differ, too, and are of the same clusters
            assert len({*names}) == len(taken) == number
            assert not made.due
            by_cluster = [names.count(each.name) for each in presets]
        assert max(by_cluster, default=0) <= PARTS


def test_machines_that_make_other_choices_are_unlike_and_equal_ones_are_alike() -> None:
    drawn = Episodes("drawn", CLUSTERS["full"], seed=7, episodes=4, steps=20)
    one, again, other = driven(drawn), driven(drawn), driven(drawn, ["double_free"])
    assert not unlike(one, again)
    assert unlike(one, other)
    assert not unlike(one, replace(other, reason="This vLLM has no x"))


def test_where_they_behave_alike_nothing_is_due() -> None:
    with compared(nothing, lambda each: result(each.name)) as found:
        found.drive([RUN, *workloads.of_presets(0)[:3]])
        assert not Differing(found, Further(0)).due


PLANS = Plays("plans", "offloading", kinds="")


def test_cache_groups_in_which_a_connector_acts_have_further_plans_and_only_these() -> None:
    def one(each: Workload) -> Result:
        return replace(nothing(each), digests={"full": 1, "full+mamba": 2})

    def other(each: Workload) -> Result:
        return replace(nothing(each), digests={"full": 1, "full+mamba": 3})

    with compared(one, other) as found:
        found.drive([PLANS])
        made = DifferingPlans(found)
        taken = made.take(PLAN_PARTS_IN_ALL)
        found.drive(taken)  # they differ, too, in the same cache groups
        assert [each.kinds for each in taken] == ["full+mamba"] * PLAN_PARTS
        assert len({each.seed for each in taken}) == PLAN_PARTS
        assert not made.due


def test_equal_plans_of_a_connector_need_no_further_ones() -> None:
    def same(each: Workload) -> Result:
        return replace(nothing(each), digests={"full": 1})

    with compared(same, same) as found:
        found.drive([PLANS])
        assert not DifferingPlans(found).due
