"""The comparison of base and head: what is confirmed, with sides made by hand."""

import time
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced_fields

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Broken, Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import (
    ENGINE,
    LOOP,
    Engine,
    Engines,
    Episodes,
    Follow,
    Plays,
    Workload,
    follow,
)
from kvproof.gate.search.comparison import TRIES, Comparison, Confirmed
from kvproof.gate.search.shorter import shorter
from kvproof.live.connectors.layouts import layouts
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.plans.engine import given
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.shrinking import AT_ONCE
from tests.fake_sides import (
    CRASH,
    LEAK,
    RUN,
    SOME,
    first_only,
    is_like,
    is_tried,
    nothing,
    shows,
)
from tests.two_machines import FULL, broken, result

KNOWN = broken("pool_adds_up", by="copied_before_filled")


def told(found: Comparison) -> list[Break]:
    """What head is said to introduce."""
    return [each.found for each in found.introduced]


def test_what_head_breaks_again_and_base_does_not_is_introduced(compare: Any) -> None:
    found = compare(nothing, shows(CRASH, LEAK, reached=(SOME,)), RUN)
    assert [(each.found, each.workload) for each in found.introduced] == [
        (CRASH, RUN.name),
        (LEAK, RUN.name),
    ]
    assert all(each.reached == {SOME} for each in found.introduced)
    assert not list(found.of_base())
    assert not found.still_there()
    before = len(found.head.driven)
    found.confirm([RUN.name])  # it is reported once
    assert (len(found.introduced), len(found.head.driven)) == (2, before)


@pytest.mark.parametrize(("statement", "deaths"), [("assert block", 1), ("", 2)])
def test_a_death_is_told_once_and_calls_that_do_not_end_are_told_apart(
    compare: Any, statement: str, deaths: int
) -> None:
    """Such a call stops at no statement of its own."""
    found = compare(nothing, shows(*(dying(each, statement) for each in ("Free", "Take"))), RUN)
    assert len(told(found)) == deaths


def dying(event: str, statement: str) -> Break:
    """A break by which an engine dies in one function, after this event."""
    return replace(broken("engine_survives", event), death="in schedule", statement=statement)


@pytest.mark.parametrize("where", [", again", "part 2", "variants from 40"])
def test_what_base_breaks_around_it_is_not_introduced(compare: Any, where: str) -> None:
    """In a variant, too, where head breaks it in few fresh runs."""
    shown = [broken("engine_survives", "Complete")]  # the same check, after another event

    def base(workload: Workload) -> Result:
        return result(workload.name, *(shown if workload.name.endswith(where) else ()))

    def head(workload: Workload) -> Result:
        return result(workload.name, *[CRASH] * (not is_like(workload)))

    found = compare(base, head, RUN)
    assert not found.introduced
    assert not found.not_again
    assert found.on_both


@pytest.mark.parametrize(
    ("around", "elsewhere", "again", "runs", "is_new"),
    [
        ("another", "nothing", "nothing", 7, True),
        ("another", "nothing", "nothing", 6, False),
        ("this", "nothing", "nothing", 7, False),
        ("another", "this", "nothing", 7, False),
        ("another", "nothing", "another", 7, False),
        ("another", "nothing", "this", 7, False),
    ],
)
def test_a_shape_that_base_shows_nowhere_tells_head_s_break_from_another_of_the_same_check(
    compare: Any, around: str, elsewhere: str, again: str, runs: int, is_new: bool
) -> None:
    """What base shows around the run of head, in a run that comes later, and in head's run. There
    one defect may come in another shape."""
    shapes = {"this": [CRASH], "another": [broken("engine_survives", yet="another")], "nothing": []}
    later = follow(FULL, "later", CRASH.events)

    def base(workload: Workload) -> Result:
        if is_tried(workload):
            return result(workload.name, *shapes[around])
        shown = shapes[elsewhere if workload.name == later.name else again]
        return replaced_fields(result(workload.name, *shown), records=(Record(whole=True),) * runs)

    def head(workload: Workload) -> Result:
        if workload.name == later.name:
            return result(workload.name)
        if is_tried(workload):
            return result(workload.name, CRASH)
        broke = Record(broken=(Broken(CRASH.need),))
        return replaced_fields(result(workload.name, CRASH), records=(broke,) * runs)

    found = compare(base, head, RUN)
    assert not found.introduced  # the search goes on
    found.drive([later])
    found.weigh_needs(lambda: False)
    assert told(found) == [CRASH] * is_new
    assert (CRASH.key in found.on_both) is (not is_new and again != "this" and runs > 6)
    assert found.needs.not_more == [CRASH.need] * (runs == 6)
    assert not found.too_few


OF_LOOP = replace(
    broken("all_blocks_return", LOOP),
    cluster=replaced_fields(FULL, name=ENGINE),
    plan=Engine("", given()),
)
ENGINES = Engines("engines", 0, 80)


def test_a_break_of_a_loop_is_looked_for_on_base_in_engines_like_its_own(compare: Any) -> None:
    def base(workload: Workload) -> Result:
        alike = isinstance(workload, Engines) and workload.like == OF_LOOP.plan.plan
        return result(workload.name, *([OF_LOOP] if alike else ()))

    for side, new in ((base, []), (nothing, [OF_LOOP])):
        found = compare(side, shows(OF_LOOP), ENGINES)
        assert told(found) == new


def test_loops_that_one_side_cannot_drive_are_named_and_say_nothing(compare: Any) -> None:
    def without(workload: Workload) -> Result:
        return Result(workload.name, without_loops="no loop")

    found = compare(without, shows(OF_LOOP), ENGINES)
    assert (found.introduced, found.only_on_base) == ([], [])
    assert found.undriven == ["1 workload on base: no loop"]
    found = compare(nothing, without)
    found.drive([ENGINES])
    assert found.only_on_base == ["no loop"]


@pytest.mark.parametrize("driven", [True, False])
def test_a_loop_that_both_drive_is_judged_beside_others(compare: Any, driven: bool) -> None:
    """Of two loops of a workload base drives one, and head breaks something in it, or in the
    other."""

    def base(workload: Workload) -> Result:
        if is_tried(workload):
            return nothing(workload)
        loops = Record(whole=driven), Record(whole=not driven)
        return Result(workload.name, without_loops="no loop", records=loops)

    def head(workload: Workload) -> Result:
        found = shows(OF_LOOP)(workload)
        if is_tried(workload):
            return found
        broke = Record(broken=(Broken(OF_LOOP.need),), whole=True)
        return replaced_fields(found, records=(broke, Record(whole=True)))

    found = compare(base, head, ENGINES)
    assert told(found) == [OF_LOOP] * driven


def test_what_is_left_out_is_counted(compare: Any) -> None:
    """Plans whose process took too long, and loops for whose layers NIXL has no place."""

    def head(workload: Workload) -> Result:
        if isinstance(workload, Plays):
            return Result(workload.name, reason="it takes more than 60 s")
        return Result(workload.name, unconnected=3)

    found = compare(nothing, head)
    plans = layouts(several=False)[:1] * 40
    found.drive([Plays(f"plans {n}", "offloading", plans=plans) for n in range(2)])
    found.drive([ENGINES])
    assert found.undriven == [
        "the loops after 3 start-ups on head: NIXL refuses the layers",
        "2 workloads of 40 plans on head: it takes more than 60 s",
    ]


def test_what_head_does_not_show_again_is_noted_and_not_introduced(compare: Any) -> None:
    runs = [follow(FULL, f"finding {n}", CRASH.events) for n in range(TRIES + 3)]
    found = compare(nothing, first_only(CRASH), *runs)
    assert not found.introduced
    assert [each.workload for each in found.not_again] == [r.name for r in runs[:TRIES]]


@pytest.mark.parametrize(
    ("base", "where"),
    [
        ((), "introduced"),
        ((CRASH,), "on_both"),
        ("base has not what it needs", "unconfirmed"),
    ],
)
def test_what_shows_after_earlier_runs_alone_is_asked_of_base_after_these(
    compare: Any, base: tuple[Break, ...] | str, where: str
) -> None:
    """Random episodes in one process: the last one finds what the others left, also in fresh ones.
    Base says something of it the second time."""
    episodes = Episodes("episodes of full", FULL, 0, 6)
    seen: list[str] = []

    def on_base(workload: Workload) -> Result:
        seen.append(workload.name)
        if seen.count(episodes.name) < 2:
            return nothing(workload)
        if isinstance(base, str):
            return Result(workload.name, reason=base)
        return result(workload.name, *base)

    def head(workload: Workload) -> Result:
        return (shows(CRASH) if is_like(workload) else first_only(CRASH))(workload)

    found = compare(on_base, head, episodes)
    assert not found.not_again
    kept = {
        "introduced": [each.found.key for each in found.introduced if not each.alone],
        "on_both": list(found.on_both),
        "unconfirmed": [each.found.key for each in found.unconfirmed],
    }
    assert {name: keys for name, keys in kept.items() if keys} == {where: [CRASH.key]}
    for one in found.introduced:
        assert shorter(found, one, time.monotonic() + 60) == one


def test_a_known_finding_is_introduced_unless_base_has_it_somewhere(compare: Any) -> None:
    other = follow(FULL, "finding y", KNOWN.events)

    def base(workload: Workload) -> Result:
        return result(workload.name, *([KNOWN] if workload.name == other.name else []))

    found = compare(base, shows(broken("writer_is_alone", by=KNOWN.by)))
    found.drive([RUN, other])
    found.confirm([RUN.name, other.name])
    assert not found.introduced
    assert found.head.driven == [RUN.name, other.name]
    assert [each.by for each in told(compare(nothing, shows(KNOWN), RUN))] == [KNOWN.by]


def test_what_both_break_is_still_there_with_its_shortest_run(compare: Any) -> None:
    def long_first(workload: Workload) -> Result:
        length = 9 if workload.name == RUN.name else 2
        return result(workload.name, broken("engine_survives", length=length))

    other = follow(FULL, "finding y", CRASH.events)
    found = compare(long_first, long_first)
    found.drive([RUN, other])
    found.confirm([RUN.name, other.name])
    assert not found.introduced
    [(workload, each)] = found.still_there()
    assert (workload, len(each.events)) == (other.name, 2)


def test_a_shorter_run_must_show_it_on_head_alone(compare: Any) -> None:
    def head(workload: Workload) -> Result:
        assert isinstance(workload, Follow)
        breaks = [CRASH, LEAK] if len(workload.events) >= 3 else []
        return result(
            workload.name, *(replace(b, events=workload.events) for b in breaks), reached=(SOME,)
        )

    def base(workload: Workload) -> Result:  # base breaks it too where the run is very short
        assert isinstance(workload, Follow)
        return result(workload.name, *([CRASH] if len(workload.events) < 4 else []))

    found = compare(base, head)
    made = shorter(found, Confirmed("finding x", CRASH, frozenset()), time.monotonic() + 6000)
    assert len(made.found.events) == 4
    assert made.also == {LEAK.key}
    assert made.reached == {SOME}
    assert shorter(found, Confirmed("finding x", CRASH, frozenset()), 0.0).found.key == CRASH.key


def test_an_interruption_keeps_the_shortest_run_so_far(compare: Any) -> None:
    tried: list[int] = []

    def head(workload: Workload) -> Result:
        assert isinstance(workload, Follow)
        tried.append(len(workload.events))
        if len(tried) > AT_ONCE:
            raise KeyboardInterrupt
        return result(workload.name, replace(CRASH, events=workload.events), reached=(SOME,))

    found = compare(nothing, head)
    with interruption.handled():
        made = shorter(found, Confirmed("finding x", CRASH, frozenset()), time.monotonic() + 6000)
    assert len(made.found.events) == min(tried[: len(tried) - 1])
    assert len(made.found.events) < len(CRASH.events)


DEAD = replace(broken("engine_survives", length=2), death="ValueError in f")


@pytest.mark.parametrize("events", [2, 4, 5])
@pytest.mark.parametrize("again", [True, False])
def test_a_run_that_base_ends_before_the_break_of_head_does_not_decide(
    compare: Any, events: int, again: bool
) -> None:
    """Base dies after so many events. Whether it has come past the break of head or not, other runs
    decide; if head breaks it in none of these, nobody knows whether base has it, too."""

    def base(workload: Workload) -> Result:
        if is_tried(workload):
            return nothing(workload)
        record = Record(tuple(range(events)))
        return replaced_fields(result(workload.name, DEAD), records=(record,))

    def head(workload: Workload) -> Result:
        if is_tried(workload):
            return result(workload.name, *[LEAK] * again)
        record = Record(tuple(range(6)), broken=(Broken(LEAK.need, LEAK.length - 1),), whole=True)
        return replaced_fields(result(workload.name, LEAK), records=(record,))

    found = compare(base, head, RUN)
    found.weigh_needs(lambda: True)
    assert told(found) == [LEAK] * again
    assert len(found.too_few) == (not again)
    assert not found.needs.not_more


def test_a_death_that_base_dies_in_another_cluster_is_not_brought_by_head(compare: Any) -> None:
    """It is base's, however often head dies of it: as an assertion that a change of hits reaches
    more often."""
    other = replaced_fields(RUN, name="another", cluster=replaced_fields(FULL, name="another"))

    def base(workload: Workload) -> Result:
        breaks = [DEAD] if workload.cluster.name == "another" else []
        return result(workload.name, *breaks)

    def head(workload: Workload) -> Result:
        return result(workload.name, DEAD)

    found = compare(base, head)
    found.drive([RUN])
    found.drive([other])
    found.confirm([RUN.name])
    found.weigh_needs(lambda: True)
    assert not found.introduced
    assert told(compare(lambda workload: result(workload.name), head, RUN)) == [DEAD]


def test_what_base_breaks_around_it_hides_nothing_with_other_features(compare: Any) -> None:
    def broken_in(cluster: Cluster) -> Break:
        return replace(CRASH, cluster=cluster)

    def head(workload: Workload) -> Result:
        return result(workload.name, broken_in(workload.cluster))

    def base(workload: Workload) -> Result:
        breaks = workload.cluster == FULL and "," in workload.name
        return result(workload.name, *([broken_in(FULL)] if breaks else ()))

    runs = [follow(FULL, f"run {n}", CRASH.events) for n in range(TRIES + 1)]
    runs.append(follow(CLUSTERS["window"], "another", CRASH.events))
    found = compare(base, head, *runs)
    assert [each.workload for each in found.introduced] == ["another"]
