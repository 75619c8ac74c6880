"""Clusters in which base and head behave differently are driven further."""

import time

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Plays, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.differing import unlike
from kvproof.gate.search.differing_plans import PARTS as PLAN_PARTS
from kvproof.gate.search.differing_plans import PARTS_IN_ALL as PLAN_PARTS_IN_ALL
from kvproof.gate.search.differing_plans import DifferingPlans
from kvproof.gate.search.search import Search
from kvproof.gate.source.changes import ChangedFunction, Changes
from kvproof.model.presets import CLUSTERS
from tests.fake_sides import CRASH, RUN, SOME, compared, nothing
from tests.two_machines import driven

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


def test_machines_that_make_other_choices_are_unlike_and_equal_ones_are_alike() -> None:
    drawn = Episodes("drawn", CLUSTERS["full"], seed=7, episodes=4, steps=20)
    one, again, other = driven(drawn), driven(drawn), driven(drawn, ["double_free"])
    assert not unlike(one, again)
    assert unlike(one, other)
    assert not unlike(one, replace(other, reason="This vLLM has no x"))


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
