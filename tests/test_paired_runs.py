"""What base and head show of the same runs: excuses that only head needs, and what costs more."""

import os
from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Broken, Need, Pair, Record
from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Again, Episodes, Workload
from kvproof.gate.search import fresh, side, workloads
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.costs import LIKELY, Weighing
from kvproof.gate.search.fresh import FRESH_MAX, FreshRuns, by_chance
from kvproof.gate.search.needs import WEIGHED_MAX
from kvproof.gate.search.search import LOOKS
from kvproof.gate.side import around_scheduler
from kvproof.model.because import choice, release
from kvproof.model.presets import CLUSTERS
from tests.cover import others_nightly
from tests.fake_sides import RUN, SOME, compared, is_like, nothing
from tests.two_machines import FULL, broken, driven, result, taken

TODAY, MAY, OTHER = release("it is so today"), choice("another is first"), release("for no reason")


def need(*excuses: Any, check: str = "room_is_used") -> Need:
    return Need(check, excuses)


def test_two_runs_part_where_something_that_can_be_seen_differs() -> None:
    assert Pair(Record((1, 2, 3)), Record((1, 2, 3))).parts_at is None
    assert Pair(Record((1, 2, 3)), Record((1, 4, 3))).parts_at == 1
    assert Pair(Record((1, 2, 3), whole=True), Record((1, 2))).parts_at == 2
    assert Pair(Record((1, 2, 3)), Record((1, 2))).parts_at is None


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ((), True),
        ((need(TODAY),), False),
        ((need(OTHER),), True),
        ((need(TODAY, OTHER),), False),
        ((need(TODAY, check="hit_is_the_longest"),), True),
    ],
)
def test_a_need_is_new_where_base_lacks_one_of_its_excuses(base: Any, new: bool) -> None:
    pair = Pair(taken(needed=base), taken(needed=(need(TODAY),)))
    assert pair.new_needs == [need(TODAY)] * new


def test_a_check_that_base_breaks_without_an_excuse_is_no_worse_with_one() -> None:
    pair = Pair(Record(broken=(Broken(need()),)), taken(needed=(need(TODAY),)))
    assert not pair.new_needs


SLOW, WRONG = "hit_is_the_longest", "writer_is_alone"


@pytest.mark.parametrize(
    ("base", "place", "head", "alone"),
    [
        (WRONG, 3, SLOW, False),
        (WRONG, 5, SLOW, True),
        ("predicted_is_taken", 3, SLOW, True),  # bookkeeping
        (WRONG, 3, "engine_survives", True),
        ("all_blocks_return", 3, "promised_tokens_are_loaded", True),  # of a connector
    ],
)
def test_performance_that_base_owes_to_a_graver_defect_is_not_counted(
    base: str, place: int, head: str, alone: bool
) -> None:
    pair = Pair(
        Record(broken=(Broken(Need(base), place),), whole=True),
        Record(broken=(Broken(Need(head), 4),), whole=True),
    )
    assert pair.new_on_head == [Need(head)] * alone


@pytest.mark.parametrize(
    ("marks", "skipped", "whole", "alone"),
    [(5, 0, False, False), (6, 0, False, True), (5, 1, False, True), (2, 0, True, True)],
)
def test_what_base_does_not_come_past_says_nothing_of_base(
    marks: int, skipped: int, whole: bool, alone: bool
) -> None:
    """A stimulus that base could not take, and so has left out, is one that it came past."""
    base = Record(tuple(range(marks)), whole=whole, skipped=skipped)
    assert bool(Pair(base, Record(broken=(Broken(Need(WRONG), 4),))).new_on_head) is alone


def test_both_sides_take_the_random_runs_that_either_has_drawn() -> None:
    drawn = Episodes("drawn", CLUSTERS["full"], seed=7, episodes=5, steps=20)
    with compared(driven, driven) as both:
        both.drive([drawn])
    base, head = both.on_base["drawn"], both.on_head["drawn"]
    assert [len(base.taken), len(head.taken)] == [3, 2]
    assert len(pairs(base, head)) == 5
    assert all(pair.parts_at is None and pair.comparable for pair in pairs(base, head))


def test_a_side_that_ends_does_not_leave_the_other_waiting() -> None:
    def ends(_workload: Workload) -> Result:
        raise RuntimeError("it has ended")

    drawn = [Episodes(f"drawn {n}", FULL, n, 4) for n in range(3)]
    with compared(ends, driven) as both, pytest.raises(RuntimeError):
        both.drive(drawn)


ELSEWHERE = replace(RUN, name="another run")


def excused(workload: Workload, *needs: Need, times: int = 1) -> Result:
    """A result in whose runs these needs show, with the breaks."""
    breaks = []
    for each in needs:
        found = broken(each.check)
        breaks.append(with_fields(found, finding=with_fields(found.finding, excuses=each.excuses)))
    return replace(
        result(workload.name, reached=(SOME,)),
        records=(taken(needed=needs),) * (FRESH_MAX if is_like(workload) else times),
        excused=tuple(breaks),
    )


def breaking(workload: Workload, *breaks: Break, times: int = 6, whole: bool = True) -> Result:
    """A result all of whose runs show these breaks."""
    needs = tuple(Broken(each.need) for each in breaks)
    record = replace(taken(), broken=needs, whole=whole or not breaks)
    number = FRESH_MAX if is_like(workload) else times
    return replace(result(workload.name, *breaks), records=(record,) * number)


Compare = Callable[..., Comparison]


def weighed(found: Comparison, *, at_once: bool = False) -> Comparison:
    """The comparison after both runs, and after what is not told at once has its fresh runs."""
    found.drive([ELSEWHERE, RUN])
    found.confirm([ELSEWHERE.name, RUN.name])
    assert bool(found.introduced) is at_once
    found.weigh_needs(lambda: True)
    return found


def test_a_release_excuse_that_only_head_needs_is_introduced(compare: Compare) -> None:
    found = compare(lambda w: excused(w), lambda w: excused(w, need(TODAY)), RUN)
    assert [each.found.finding.excuses for each in found.introduced] == [(TODAY,)]
    assert not found.costs


def test_an_excuse_that_does_not_show_again_is_not_introduced(compare: Compare) -> None:
    def once(workload: Workload) -> Result:
        return excused(workload, *([need(TODAY)] if "," not in workload.name else []))

    found = compare(lambda w: excused(w), once, RUN)
    assert not found.introduced


@pytest.mark.parametrize("runs", [2, 6])
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("excuse", [TODAY, MAY])
def test_what_base_needs_elsewhere_or_may_choose_must_be_needed_more_often(
    compare: Compare, excuse: Any, fresh: bool, runs: int
) -> None:
    """In the runs of the search, and in fresh ones. What comes again there, and not more often, is
    named."""

    def base(workload: Workload) -> Result:
        if workload.name == ELSEWHERE.name:
            return excused(workload, need(excuse))
        return excused(workload, times=runs)

    def head(workload: Workload) -> Result:
        needs = [need(excuse)] * (fresh or not is_like(workload))
        return excused(workload, *needs, times=1 if workload.name == ELSEWHERE.name else runs)

    found = weighed(compare(base, head))
    told = fresh and runs == 6
    assert len(found.introduced) == (told and excuse == TODAY)
    assert len(found.costs) == (told and excuse == MAY)
    assert found.needs.not_more == [need(excuse)] * (not fresh and runs == 6)


@pytest.mark.parametrize("runs", [2, 6])
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_what_base_breaks_in_another_run_must_be_broken_more_often(
    compare: Compare, whole: bool, fresh: bool, runs: int
) -> None:
    """The same known finding explains both: head may break it by another cause. What breaks may end
    the run."""
    found = broken("pool_adds_up", by="copied_before_filled")

    def base(workload: Workload) -> Result:
        elsewhere = workload.name == ELSEWHERE.name
        times = 1 if elsewhere else runs
        return breaking(workload, *[found] * elsewhere, times=times, whole=whole)

    def head(workload: Workload) -> Result:
        often = fresh or not is_like(workload)
        times = 1 if workload.name == ELSEWHERE.name else runs
        return breaking(workload, *[found] * often, times=times, whole=whole)

    both = weighed(compare(base, head))
    told = fresh and runs == 6
    assert [each.found.key for each in both.introduced] == [found.key] * told
    assert [each.key for _, each in both.still_there()] == [found.key] * (not told)


@pytest.mark.parametrize("shape", ["not this", "another", ""])
def test_a_break_of_base_counts_against_one_of_head_in_any_shape(
    compare: Compare, shape: str
) -> None:
    """Base alone breaks the check in as many other runs, or in none: head may have changed how its
    defect looks. A known finding explains both, so that only numbers can tell."""
    known = "copied_before_filled"
    found = broken("pool_adds_up", by=known)
    others = broken("pool_adds_up", by=known, yet=shape)

    def base(workload: Workload) -> Result:
        breaks = bool(shape) and workload.name == ELSEWHERE.name
        return breaking(workload, *[others] * breaks)

    def head(workload: Workload) -> Result:
        return breaking(workload, *[found] * (workload.name != ELSEWHERE.name))

    both = weighed(compare(base, head), at_once=not shape)
    assert [each.found.key for each in both.introduced] == [found.key] * (not shape)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kind", [release, choice])
def test_excuses_of_one_kind_are_weighed_together_if_none_is_likely_alone(
    compare: Compare, kind: Any, fresh: bool
) -> None:
    """Base needs each of them in another run. Head needs another one in each of six."""
    several = [need(kind(f"reason {number}")) for number in range(6)]

    def runs(workload: Workload, of_run: list[tuple[Need, ...]]) -> Result:
        found = excused(workload, *dict.fromkeys(each for needs in of_run for each in needs))
        return replace(found, records=tuple(taken(needed=each) for each in of_run))

    def base(workload: Workload) -> Result:
        if workload.name == ELSEWHERE.name:
            return runs(workload, [tuple(several)])
        return runs(workload, [()] * (FRESH_MAX if is_like(workload) else 6))

    def head(workload: Workload) -> Result:
        if workload.name == ELSEWHERE.name:
            return runs(workload, [tuple(several)])
        if is_like(workload):
            return runs(workload, [(each,) * fresh for each in several * (FRESH_MAX // 6)])
        return runs(workload, [(each,) for each in several])

    found = weighed(compare(base, head))
    assert len(found.introduced) == (fresh and kind is release)
    assert len(found.costs) == (fresh and kind is choice)


@pytest.mark.parametrize("number", others_nightly(range(4), [0, 3]))
def test_fresh_runs_are_none_of_the_search(compare: Compare, number: int) -> None:
    drawn, taken = workloads.of_engines(0), []

    def takes(workload: Workload) -> Result:
        taken.append(workload)
        return nothing(workload)

    FreshRuns(compare(takes, nothing), [plans_of(drawn)[number]]).take()
    assert not [each for each in plans_of(taken[0]) if each in plans_of(drawn)]


def test_no_two_kinds_of_workloads_draw_the_same_plans() -> None:
    """Else runs of the search would come again in those that are to say whether it was chance."""
    looks = [
        workloads.of_connectors(["offloading"], 0, look, look=True)[0] for look in range(1, LOOKS)
    ]
    parts = [workloads.of_connectors(["offloading"], 0, part)[0] for part in range(60)]
    taken = range(fresh.APART, fresh.APART + 60)
    others = [workloads.near(parts[0], "near", 0, part) for part in (*range(60), *taken)]
    seeds = [each.seed for each in (*looks, *parts, *others)]
    assert len({*seeds}) == len(seeds)


def plans_of(workload: Any) -> list[Any]:
    """Each plan of a workload as a workload."""
    found = (around_scheduler.single(workload, n, "") for n in range(workload.episodes))
    return [each for each in found if each is not None]


def test_chance_is_excluded_by_a_sign_test() -> None:
    assert by_chance(7, 0) < 0.01 < by_chance(6, 0)
    assert by_chance(0, 0) == 1
    assert by_chance(20, 5) < 0.01 < by_chance(12, 8)


def several(number: int, **counts: int) -> tuple[Record, ...]:
    return (taken(**counts),) * number


def costs(found: Comparison, go_on: Callable[[], bool]) -> Weighing:
    """What costs more, as it is found at the end of a search."""
    weighed = Weighing(found)
    weighed.weigh(go_on)
    return weighed


@pytest.mark.parametrize(
    ("worse", "better", "again", "told"),
    [
        (8, 0, (5, 0), True),
        (7, 0, (5, 0), False),
        (8, 1, (5, 0), False),
        (79, 10, (12, 4), True),
        (79, 10, (8, 8), False),
        (8, 0, (4, 0), False),
    ],
)
def test_what_is_worse_in_significantly_more_runs_costs_more(
    compare: Compare, worse: int, better: int, again: tuple[int, int], told: bool
) -> None:
    def runs(workload: Workload) -> tuple[int, int]:
        return again if is_like(workload) else (worse, better)

    def base(workload: Workload) -> Result:
        number = sum(runs(workload)) + 3
        return replace(nothing(workload), records=several(number, tokens_hit=6))

    def head(workload: Workload) -> Result:
        fewer, more = runs(workload)
        records = several(fewer, tokens_hit=4) + several(more, tokens_hit=8)
        return replace(nothing(workload), records=records + several(3, tokens_hit=6))

    found = compare(base, head)
    found.drive([RUN])
    differ = worse + better
    sums = 6 * differ, 4 * worse + 8 * better
    expected = [("tokens hit", worse, better, differ + 3, *sums)] if told else []
    turns = iter([True, False])
    weighed = costs(found, lambda: next(turns))
    told_of = [(c.what, c.worse, c.better, c.runs, c.base, c.head) for c in weighed.told]
    assert told_of == expected
    suspected = by_chance(worse, better) <= LIKELY
    named = f"fresh: worse in {again[0]} of {sum(again) + 3} runs and better in {again[1]}"
    assert [each.endswith(named) for each in weighed.unconfirmed] == [True] * (suspected > told)


@pytest.mark.parametrize(("worse", "early"), [(8, False), (11, False), (12, True)])
def test_what_is_hardly_chance_is_weighed_while_the_search_goes_on(
    compare: Compare, worse: int, early: bool
) -> None:
    """The end of the search may leave no time. The rest, which is looked at often, has to wait."""
    hits = 6, 4
    base, head = (
        lambda w, h=h: replace(nothing(w), records=several(worse, tokens_hit=h)) for h in hits
    )
    found = compare(base, head)
    found.drive([RUN])
    weighing = Weighing(found)
    for _ in range(3):
        weighing.early(lambda: True)
    assert [each.what for each in weighing.told] == ["tokens hit"] * early
    assert weighing.has_suspects is not early
    weighing.rest(lambda: True, lambda: True)
    assert [each.what for each in weighing.told] == ["tokens hit"]


@pytest.mark.parametrize(("runs", "early"), [(6, False), (9, True)])
def test_so_is_what_head_needs_more_often(compare: Compare, runs: int, early: bool) -> None:
    def base(workload: Workload) -> Result:
        elsewhere = workload.name == ELSEWHERE.name
        return excused(workload, *[need(TODAY)] * elsewhere, times=1 if elsewhere else runs)

    found = compare(base, lambda w: excused(w, need(TODAY), times=runs))
    found.drive([replace(RUN), ELSEWHERE])
    weighing = Weighing(found)
    weighing.early(lambda: True)
    assert bool(found.introduced) is early
    weighing.rest(lambda: True, lambda: True)
    assert found.introduced


def test_what_does_not_show_again_takes_nothing_from_what_does(compare: Compare) -> None:
    """It is looked at after each part of the search, and has no fresh runs."""
    gone, there = need(TODAY, check="hit_is_the_longest"), need(TODAY)

    def base(workload: Workload) -> Result:
        elsewhere = workload.name == ELSEWHERE.name
        return excused(workload, *[gone, there] * elsewhere, times=1 if elsewhere else 9)

    def head(workload: Workload) -> Result:
        if workload.name == ELSEWHERE.name:
            return excused(workload, gone, there)
        if workload.name != RUN.name:
            return excused(workload, there, times=9)
        records = (taken(needed=(gone, there)),) * 6 + (taken(needed=(gone,)),) * 3
        return replace(excused(workload, there), records=records)

    found = compare(base, head)
    found.drive([RUN, ELSEWHERE])
    weighing = Weighing(found)
    for _ in range(WEIGHED_MAX):
        weighing.early(lambda: True)
    assert not found.introduced
    weighing.rest(lambda: True, lambda: True)
    assert [each.found.need for each in found.introduced] == [there]


def test_a_quantity_that_differs_often_and_both_ways_is_not_looked_at_for_ever(
    compare: Compare,
) -> None:
    def head(workload: Workload) -> Result:
        better = several(4, tokens_hit=8) if is_like(workload) else ()
        return replace(
            nothing(workload), records=several(8, tokens_hit=4)[: 8 - len(better)] + better
        )

    found = compare(lambda w: replace(nothing(w), records=several(8, tokens_hit=6)), head)
    found.drive([RUN])
    assert not costs(found, lambda: True).told


def test_what_is_rare_has_fresh_runs_until_it_is_seen_often_enough(compare: Compare) -> None:
    def runs(workload: Workload, hit: int) -> Result:
        number = 1 if is_like(workload) else 8
        return replace(nothing(workload), records=several(number, tokens_hit=hit))

    found = compare(lambda each: runs(each, 6), lambda each: runs(each, 4))
    found.drive([RUN])
    turns = iter([True] * 5)
    assert [each.what for each in costs(found, lambda: next(turns)).told] == ["tokens hit"]


def test_episodes_again_are_those_that_were_drawn() -> None:
    drawn = driven(Episodes("drawn", CLUSTERS["full"], seed=3, episodes=3, steps=20))
    again = driven(Again("again", CLUSTERS["full"], drawn.taken))
    assert again.records == drawn.records
    assert len(again.records) == 3


@pytest.mark.parametrize(
    ("excuse", "time", "left"),
    [(TODAY, False, True), (MAY, False, True), (TODAY, True, False), (MAY, True, True)],
)
def test_what_there_was_no_time_to_weigh_is_named(
    compare: Compare, excuse: Any, time: bool, left: bool
) -> None:
    """Choices leave the time to what is counted."""

    def base(workload: Workload) -> Result:
        return excused(workload, *[need(excuse)] * (workload.name == ELSEWHERE.name), times=6)

    found = compare(base, lambda w: excused(w, need(excuse), times=6))
    found.drive([ELSEWHERE, RUN])
    found.weigh_needs(lambda: time, lambda: False)
    assert found.needs.unweighed == [need(excuse)] * left
    assert not left or not (found.introduced or found.costs)


def test_a_side_for_which_nothing_was_drawn_could_not_be_driven() -> None:
    def cannot(workload: Workload) -> Result:
        return Result(workload.name, reason="This vLLM has no x")

    with compared(cannot, driven) as both:
        both.drive([Episodes("drawn", FULL, 0, 1)])
    assert both.on_head["drawn"].reason
    assert not pairs(both.on_base["drawn"], both.on_head["drawn"])


def test_both_sides_read_a_set_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "PROGRAM", "tests.order_of_names")
    orders = []
    for seed in "12":
        with side.started(os.environ | {side.HASH_SEED: seed}) as one:
            assert one._process.stdout is not None
            orders.append(one._process.stdout.readline())
    assert orders[0] == orders[1] != b""
