"""Whether head alone breaks something: base has a fair chance to show it in runs like this one."""

from collections.abc import Container, Iterable, Iterator, Sequence
from zlib import crc32

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Broken, Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Episodes, Workload
from kvproof.gate.search.fresh import AT_ONCE, CERTAIN, EARLY, FRESH_MAX
from kvproof.gate.search.side import Ended
from kvproof.gate.search.trial import FRESH_MIN, Trial
from kvproof.gate.search.variants import VARIANTS_MAX
from kvproof.model import planting
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.blocks import pool
from kvproof.model.state import Engine
from tests.fake_sides import CRASH, LEAK, RUN, Does, compared, is_like, is_tried
from tests.two_machines import broken, driven, result

BROKE, HELD = Record(broken=(Broken(CRASH.need),), whole=True), Record(whole=True)

FEWEST = 7
"""The fewest runs of head alone, beside none of base, by which something is told: 1 in 128."""


def breaking(fresh: float, near: float, seed: int = 0) -> Does:
    """A side that breaks a check in this share of fresh runs and of variants, another part of them
    for each seed, and in the run of the search."""

    def breaks(workload: Workload, number: int) -> bool:
        share = fresh if is_like(workload) else near
        return crc32(f"{seed} {workload.name} {number}".encode()) % 1000 < 1000 * share

    def does(workload: Workload) -> Result:
        if not is_tried(workload):
            broke = [CRASH] * (fresh > 0)
            return result(workload.name, *broke, records=(BROKE if broke else HELD,))
        drawn = workload.episodes if isinstance(workload, Episodes) else len(workload.runs)
        broke = [breaks(workload, number) for number in range(drawn)]
        records = tuple(BROKE if each else HELD for each in broke)
        return replace(result(workload.name, *[CRASH] * any(broke)), records=records)

    return does


def rare(of: Does) -> Does:
    """The same side, which does not break the run of the search."""

    def does(workload: Workload) -> Result:
        found = of(workload)
        again = workload.name in (RUN.name, f"{RUN.name}, again")
        return replace(found, breaks=(), records=(HELD,)) if again else found

    return does


@pytest.mark.parametrize(
    ("fresh", "near", "told", "taken"),
    [
        (1.0, 0.0, True, FEWEST + 1),
        (0.3, 0.0, True, FRESH_MAX),
        (0.02, 0.4, True, FRESH_MIN + VARIANTS_MAX),
        (0.02, 0.02, False, FRESH_MIN + VARIANTS_MAX),
    ],
)
def test_what_base_never_breaks_is_told_if_head_breaks_it_often_enough(
    fresh: float, near: float, told: bool, taken: int
) -> None:
    with compared(breaking(0, 0), breaking(fresh, near), RUN) as both:
        assert bool(both.introduced) is told
        assert [trial.counted.taken <= taken for _, trial in both.undecided.values()] == [True] * (
            not told
        )
        both.weigh_needs(lambda: True)
        assert len(both.too_few) == (not told)
        assert all("too few to say" in line and f"of {taken} runs" in line for line in both.too_few)


@pytest.mark.parametrize(("fresh", "told"), [(1.0, True), (0.02, False)])
def test_where_no_time_is_left_the_least_number_of_fresh_runs_decides(
    fresh: float, told: bool
) -> None:
    with compared(breaking(0, 0), breaking(fresh, 1)) as both:
        both.may_try = lambda: False
        both.drive([RUN])
        both.confirm([RUN.name])
        assert bool(both.introduced) is told
        assert [trial.counted.taken for _, trial in both.undecided.values()] == [FRESH_MIN] * (
            not told
        )


def test_what_is_not_decided_is_named_if_a_process_ends_while_needs_are_weighed() -> None:
    def ends(*_: object) -> Iterator[tuple[str, Break, Result]]:
        raise Ended("killed")

    with compared(breaking(0, 0), breaking(0.02, 0.02), RUN) as both:
        both.needs.weigh = ends  # type: ignore[method-assign]
        with pytest.raises(Ended):
            both.weigh_needs(lambda: True)
        assert both.too_few


@pytest.mark.parametrize(("runs", "told"), [(10, False), (11, True)])
def test_the_search_tells_before_its_end_what_trials_cannot(runs: int, told: bool) -> None:
    """No fresh run shows it, as where base's own defects end nearly all of them. A further look
    asks for less chance than the last one."""
    with compared(breaking(0, 0), breaking(0.001, 0)) as both:
        for number in range(runs):
            both.confirm(both.drive([replace(RUN, name=f"run {number}")]))
        both.weigh_undecided(CERTAIN / EARLY)
        assert (bool(both.introduced), bool(both.undecided)) == (told, not told)


@pytest.mark.parametrize(
    ("base", "head", "told"),
    [
        (breaking(0.1, 0.0), breaking(0.9, 0.0, 1), True),
        (breaking(0.3, 0.0), breaking(0.4, 1.0, 1), False),
        (breaking(0.0, 0.1), breaking(0.02, 1.0, 1), False),
    ],
    ids=["far more often", "about as often", "in variants"],
)
def test_what_base_breaks_too_is_told_if_head_does_so_more_often_in_fresh_runs(
    base: Does, head: Does, told: bool
) -> None:
    with compared(rare(base), head, RUN) as both:
        assert (bool(both.introduced), bool(both.on_both)) == (told, not told)


@pytest.mark.parametrize(("runs", "told"), [(FEWEST, False), (10, False), (11, True)])
def test_what_base_breaks_too_needs_more_runs_as_it_has_many_trials(runs: int, told: bool) -> None:
    trial = Trial(CRASH, lambda _: ())
    for _ in range(runs):
        both = result("run", records=(HELD,)), result("run", CRASH, records=(BROKE,))
        trial.add(*both, fresh=True)
    trial.on_base = True
    assert trial.is_told is told


@pytest.mark.parametrize("side", ["base", "head"])
def test_what_a_trial_could_not_ask_is_not_told_by_others(side: str) -> None:
    trial, ended = (Trial(CRASH, lambda _: ()) for _ in range(2))
    for _ in range(FEWEST):
        both = result("run", records=(HELD,)), result("run", CRASH, records=(BROKE,))
        trial.add(*both, fresh=True)
    why = {each: "it has ended" * (each == side) for each in ("base", "head")}
    ended.add(*(result("run", reason=each) for each in why.values()), fresh=True)
    assert trial.is_told
    trial.join(ended)
    assert not trial.is_told


def test_a_second_trial_of_a_break_takes_other_runs_than_the_first() -> None:
    """Else each of its runs would count twice, and four be as good as eight."""
    other, drawn = replace(RUN, name="finding y"), list[int]()

    def head(workload: Workload) -> Result:
        if isinstance(workload, Episodes):
            drawn.append(workload.seed)
        return breaking(0.02, 0.02)(workload)

    with compared(breaking(0, 0), head) as both:
        for run in RUN, other:
            both.confirm(both.drive([run]))
        [(_, trial)] = both.undecided.values()
        half = AT_ONCE // 2  # a side made by hand takes no runs of the other
        assert (trial.parts, trial.fresh.taken) == (2, half * len({*drawn}))


def test_a_defect_of_both_that_head_was_first_to_show_is_hardly_ever_told() -> None:
    """Both have it in one of 50 runs, and in every tenth that is like the one of head."""
    told = 0
    for seed in range(100):
        base, head = breaking(0.02, 0.1, seed), breaking(0.02, 0.1, seed + 1000)
        with compared(rare(base), head, RUN) as both:
            both.weigh_needs(lambda: True)
            told += bool(both.introduced)
    assert told <= 1


@pytest.mark.parametrize("graver", [True, False])
def test_beside_what_is_graver_a_break_is_tried_in_few_fresh_runs_alone(graver: bool) -> None:
    """Variants would tell it, as they do where it is the only break."""
    always = [CRASH] * graver

    def head(workload: Workload) -> Result:
        return result(workload.name, *always, *[LEAK] * (not is_like(workload)))

    with compared(breaking(0, 0), head, RUN) as both:
        assert [one.found for one in both.introduced] == (always or [LEAK])
        taken = [trial.counted.taken for _, trial in both.undecided.values()]
        assert taken == [FRESH_MIN] * graver


@pytest.mark.parametrize(
    ("before", "by_base", "told"),
    [
        ("pool_adds_up", True, False),
        ("pool_adds_up", False, True),
        ("idle_engine_has_published", True, True),
    ],
    ids=["of base", "of head", "less grave"],
)
def test_what_follows_from_a_defect_of_base_is_not_told(
    before: str, by_base: bool, told: bool
) -> None:
    """Head breaks a check in every run but one of four, and another one after it. Base breaks the
    first in that one. A leak does not follow from what is less grave than it."""
    first, turns = broken(before), range(1, 4)

    def side(breaks: Sequence[Break], turns: Container[int]) -> Does:
        record = Record(broken=tuple(Broken(each.need) for each in breaks), whole=True)

        def does(workload: Workload) -> Result:
            if not is_tried(workload):
                return result(workload.name, *breaks, records=(record,))
            drawn = workload.episodes if isinstance(workload, Episodes) else len(workload.runs)
            records = tuple(record if number in turns else HELD for number in range(drawn))
            return result(workload.name, *breaks, records=records)

        return does

    base = side([first] * by_base, [0])
    with compared(rare(base), side([first, LEAK], turns), RUN) as both:
        assert (LEAK in [one.found for one in both.introduced]) is told


right_release, right_take = pool.release, pool.take


def leaks(engine: Engine, blocks: Iterable[int]) -> Engine:
    """A mistake: one of 40 blocks that are freed is not put into the free queue."""
    freed = tuple(blocks)
    after = right_release(engine, freed)
    if freed and crc32(repr((freed, engine.free)).encode()) % 40 == 0:
        return after._replace(free=engine.free)
    return after


def of_highest_id(engine: Engine, count: int) -> tuple[Engine, tuple[int, ...]]:
    """A harmless change: of the free blocks that hold nothing, the one with the highest id is taken
    first."""
    empty = [each for each in engine.free if engine.blocks[each].key is None]
    order = (*sorted(empty, reverse=True), *(e for e in engine.free if e not in empty))
    return right_take(engine._replace(free=order), count)


@pytest.mark.parametrize("first", [14, 18])
def test_a_rare_defect_of_both_is_not_told_of_a_head_that_does_something_else_beside(
    first: int,
) -> None:
    """Nor is it in other runs: of the 16 sets of four from 10 to 73 none tells it, and none does of
    a head that preempts the first request or computes two tokens at most. What follows from the
    defect told it in seven sets, and in four of those with smaller steps."""
    mistake: planting.Replaced = {"reference.blocks.pool:release": leaks}
    changed = mistake | {"reference.blocks.pool:take": of_highest_id}
    numbers = range(first, first + 4)
    drawn = [Episodes(f"drawn {n}", CLUSTERS["full"], n, 6, 20) for n in numbers]
    with compared(
        lambda workload: driven(workload, replaced=mistake),
        lambda workload: driven(workload, replaced=changed),
    ) as both:
        both.confirm(both.drive(drawn))
        both.weigh_needs(lambda: True)
        assert not both.introduced
        assert both.on_both or both.too_few, "head was first to show it"
