"""The search of a comparison: the order of the workloads, and where it ends. The sides are made by
hand."""

import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.protocol import KitConnector
from kvproof.gate.difference.record import Record
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Engines, Episodes, Plays, Workload
from kvproof.gate.search import named_features, search, workloads
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.named_features import pairs
from kvproof.gate.search.search import Search
from kvproof.gate.side import around_scheduler
from kvproof.gate.source.changes import USED, ChangedFunction, Changes
from kvproof.gate.source.parts import OFFLOADING, SIZING
from tests.fake_sides import CRASH, OTHER, RUN, SOME, compared, nothing, shows
from tests.two_machines import result


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few traces. They reach the changed function on the preset `full` alone."""
    monkeypatch.setattr(workloads, "of_findings", lambda: [RUN])
    monkeypatch.setattr(workloads, "of_faults", lambda: [OTHER])


def changing(*keys: str, statements: tuple[str, ...] = (), part: str = "") -> Changes:
    """A head that changes these functions of a part, each with these statements."""
    made = (
        ChangedFunction(*key.split(":"), 1, "changed", part=part, statements=statements)
        for key in keys
    )
    return Changes(tuple(made), ())


def searching(both: Comparison, **options: Any) -> Search:
    given: dict[str, Any] = {
        "changes": changing(SOME),
        "until": time.monotonic() + 6000,
        "fails": lambda: bool(both.introduced),
        "show": lambda _text: None,
    }
    return Search(both, **given | options)


def some_presets() -> Callable[[], bool]:
    """It says that the search fails, some time after all presets were driven."""
    turns = iter(range(len(workloads.of_presets(0)) // 2))
    return lambda: next(turns, None) is None


def test_traces_come_first_then_some_presets_then_the_others_take_turns_with_the_rest() -> None:
    def full(each: Workload) -> Result:
        """One cluster executes the change, and others may reach the function."""
        there = isinstance(each, Episodes) and each.cluster.name == "full"
        return replace(nothing(each), watched=True, reached=(SOME,) * there)

    with compared(nothing, full) as found:
        searching(found, fails=some_presets()).run()
    kinds = [name.split()[0] for name in found.names]
    assert kinds[:2] == ["finding", "engines"]
    presets = {each.name for each in workloads.of_presets(0)}
    assert found.names[1:3] == ["engines", OTHER.name]
    assert found.names[3] == "episodes of full"  # the traces on it reach what head changes
    begin = next(n for n, name in enumerate(found.names) if "random" in name)
    assert {*found.names[3:begin]} < presets  # each pair of features, but not all presets
    turn = [name.split(",")[0] for name in found.names[begin:]]
    # Its cluster, and what else reaches it.
    assert {f"episodes like {RUN.name}", "engines"} < {*turn}
    assert [*found.on_base] == [*found.on_head] == found.names


@pytest.mark.parametrize(
    ("word", "about"), [("pooling_params", "pools"), ("num_draft_tokens", "drafts")]
)
def test_code_of_a_kind_of_models_is_driven_with_such_engines_first_and_again(
    word: str, about: str
) -> None:
    changed = ChangedFunction(*SOME.split(":"), 1, "changed", words=frozenset({word}))

    def reaching(each: Workload) -> Result:
        return result(each.name, reached=(SOME,))

    with compared(nothing, reaching) as found:
        made = searching(
            found,
            changes=Changes((changed,), ()),
            fails=lambda: len(found.names) > 400,
        )
        assert made.reaches()
        made.run()
    name = f"engines ({about})"
    assert next(each for each in found.names if each.startswith("engines")) == name
    assert f"{name}, part 3" in found.names
    workload = found.workloads[name]
    assert isinstance(workload, Engines)
    plans = [around_scheduler.single(workload, number, "one") for number in range(8)]
    assert all(each is not None and getattr(each.plan, about) for each in plans)
    again = around_scheduler.single(Engines("alike", like=plans[0].plan), 0, "one")  # type: ignore[union-attr]
    assert again is not None
    assert getattr(again.plan, about)


def test_two_searches_with_one_seed_take_the_same_workloads() -> None:
    def names(seed: int) -> list[str]:
        with compared(nothing, nothing, seed=seed) as found:
            searching(found, fails=some_presets()).run()
        return [*found.names]

    assert names(3) == names(3)
    assert not {n for n in names(3) if "random" in n} & {n for n in names(4) if "random" in n}


FURTHER = ["further traces", "presets", "further presets and traces"]


@pytest.fixture
def _known_by_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of workloads that execute the change keeps no search from its end."""
    monkeypatch.setattr(search, "UNSEEN_MAX", 0.9)


def knowing(each: Workload, *reached: str) -> Result:
    """A workload that executes the change, and more."""
    return result(each.name, reached=(SOME, *reached))


def parting(of: Callable[[Workload], Result]) -> Callable[[Workload, int], Result]:
    """The results of runs whose only event leaves this mark."""

    def made(each: Workload, mark: int) -> Result:
        return replace(of(each), records=(Record(marks=(mark,), whole=True),))

    return made


@pytest.mark.usefixtures("_known_by_few")
def test_the_search_ends_where_the_change_is_known() -> None:
    """Not before each pair of features was driven, though starts, which come first, know it."""
    with compared(nothing, knowing) as found:
        made = searching(found, changes=changing(SOME, part=SIZING))
        assert made.reaches()
        made.run()
    assert (made.missing, found.names[-1].split()[0]) == ([], "episodes")
    [line] = made.not_run
    assert line == "{0} of {0} further presets and traces".format(line.split()[0])
    clusters = [each.cluster for each in found.workloads.values() if isinstance(each, Episodes)]
    driven = frozenset[str]().union(*map(pairs, clusters))
    assert driven == frozenset[str]().union(*(pairs(e.cluster) for e in workloads.of_presets(0)))
    assert len(clusters) < len(workloads.of_presets(0)) / 2


@pytest.mark.usefixtures("_known_by_few")
def test_the_search_goes_on_where_the_sides_part() -> None:
    """What a change does is not known where it does something."""
    limit = 2 * len(workloads.of_presets(0))
    parts = parting(knowing)
    with compared(lambda each: parts(each, 1), lambda each: parts(each, 2)) as found:
        sized = changing(SOME, part=SIZING)
        searching(found, changes=sized, fails=lambda: len(found.names) > limit).run()
    assert len(found.names) > limit


def test_runs_in_which_the_sides_part_leave_time_for_the_others() -> None:
    """Where base and head part in each run, further runs of these kinds take half of the steps."""

    def parts(mark: int) -> Callable[[Workload], Result]:
        return lambda each: replace(parting(knowing)(each, mark), steps=10)

    limit = len(workloads.of_presets(0))
    with compared(parts(1), parts(2)) as found:
        searching(found, fails=lambda: len(found.names) > limit).run()
    further = ["like" in name for name in found.names]
    assert sum(further) > limit / 3
    for driven in range(1, len(further)):
        assert 2 * sum(further[:driven]) <= driven + 2 * search.SAMPLED_AT_ONCE


@pytest.mark.usefixtures("_known_by_few")
def test_the_search_goes_on_while_a_changed_statement_was_not_executed() -> None:
    """But for one that only raises an exception, which is not awaited."""
    changes = changing(SOME, statements=(SOME, "x", "y"))
    [one] = changes.accounting
    changes = changes._replace(accounting=(one._replace(raises=frozenset({"y"})),))
    with compared(nothing, lambda each: knowing(each, *("x",) * ("random" in each.name))) as found:
        made = searching(found, changes=changes)
        made.run()
    assert any("random" in name for name in found.names)
    assert made.missing == []
    assert sum("random" in name for name in found.names) == search.SAMPLED_AT_ONCE


@pytest.mark.usefixtures("_known_by_few")
@pytest.mark.parametrize("part", [USED, "scheduler"])
def test_what_no_run_executes_is_looked_for_where_it_has_to_be_judged(part: str) -> None:
    """A function outside that the accounting uses may never be called. One of the accounting is
    looked for until the end."""
    changes = changing(SOME, "v1/other.py:never")
    [one, other] = changes.accounting
    changes = changes._replace(accounting=(one, other._replace(part=part)))
    limit = 48 + len([*workloads.of_presets(0)])
    with compared(nothing, knowing) as found:
        made = searching(found, changes=changes, fails=lambda: len(found.names) > limit)
        made.run()
        known = len(found.names)
    assert (known <= limit) is (part == USED)


def test_the_search_goes_on_until_few_of_further_workloads_may_show_something() -> None:
    with compared(nothing, nothing) as found:
        made = searching(found)
        made.run()
        [number] = found.executing(made.changes.accounting)
    assert 0 <= number - 3 / search.UNSEEN_MAX < len(FURTHER) * search.SAMPLED_AT_ONCE
    assert made.not_run
    assert not made.missing


def test_of_traces_none_counts_and_of_plans_none_where_clusters_execute_a_change() -> None:
    changed = changing(SOME, "v1/other.py:gone").accounting
    plans = [Plays(f"plans {number}", "store") for number in range(3)]
    with compared(lambda each: result(each.name, reached=("v1/other.py:gone",)), nothing) as found:
        for drawn, number in ((plans, 3), (workloads.of_presets(0)[:2], 2)):
            found.drive(drawn)
            assert found.executing(changed) == [number, number]
    with compared(nothing, nothing) as found:
        found.drive([RUN, *plans])
        assert found.executing(changed) == [0, 0]
    with compared(nothing, lambda each: result(each.name, reached=(SOME,), reason="no")) as found:
        found.drive(workloads.of_presets(0)[:2])
        assert found.executing(changed[:1]) == [0]


def test_the_search_ends_where_head_fails_and_lists_what_was_not_run() -> None:
    with compared(nothing, shows(CRASH)) as found:
        made = searching(found)
        made.run()
    assert found.names == [RUN.name]
    assert [line.split(" ", 3)[3] for line in made.not_run] == FURTHER


def test_what_differs_is_confirmed_where_time_ends_the_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "TRACES_AT_ONCE", 1)
    with compared(nothing, shows(CRASH)) as found:
        made = searching(found, fails=lambda: False)
        driven = found.drive

        def drive(*args: Any, **options: Any) -> list[str]:
            names = driven(*args, **options)
            made.until = time.monotonic()
            return names

        monkeypatch.setattr(found, "drive", drive)
        made.run()
    assert found.names == [RUN.name]
    assert [one.workload for one in found.introduced] == [RUN.name]


def test_no_workload_begins_after_its_end() -> None:
    with compared(nothing, nothing) as found:
        made = searching(found, until=time.monotonic() - 1)
        made.run()
    assert not found.names
    assert [line.split(" ", 3)[3] for line in made.not_run] == ["traces", *FURTHER]
    numbers = [int(line.split()[0]) for line in made.not_run]
    assert sum(numbers[2:]) == len(workloads.of_presets(0))


def test_what_cannot_be_driven_is_listed_once_for_each_reason() -> None:
    def cannot(workload: Workload) -> Result:
        return Result(workload.name, reason="This vLLM has no x")

    with compared(nothing, cannot) as found:
        found.drive([RUN, OTHER])
    assert found.undriven == ["2 workloads on head: This vLLM has no x"]


def test_a_look_says_whether_anything_reaches_what_head_changes() -> None:
    """It asks no check, and ends with the first part of the traces that reaches it."""
    with compared(nothing, shows(CRASH, reached=(SOME,))) as found:
        assert searching(found).reaches()
        assert not found.names
    with compared(shows(), shows()) as found:
        assert not searching(found).reaches()


CONNECTORS = tuple(
    KitConnector(name, (f"v1/{name}",)) for name in ("example", "offloading", "store")
)


def reaching(*names: str) -> Callable[[Workload], Result]:
    """A side whose plans reach the changed function with these connectors, and no trace does."""

    def does(workload: Workload) -> Result:
        reached = isinstance(workload, Plays) and workload.connector in names
        return result(workload.name, reached=(SOME,) if reached else ())

    return does


def kinds(names: list[str]) -> list[str]:
    """The first words of names of workloads, each once."""
    return list(dict.fromkeys(name.split(",")[0].split(" ")[0] for name in names))


def test_a_changed_connector_is_driven_first_and_alone() -> None:
    """The other connectors have one workload each: the look."""
    with compared(nothing_reached, reaching("store")) as both:
        made = searching(both, changes=changing(SOME, part=OFFLOADING))
        made.connectors = CONNECTORS
        assert made.reaches()
        assert made.reaching == ["store"]
        made.fails = lambda: len(both.names) > 6
        made.run()
    assert both.names[:3] == [f"plans for {each.name}" for each in CONNECTORS]
    assert both.names[3:6] == [f"plans for store, part {part}" for part in (2, 3, 4)]


def test_what_only_a_connector_reaches_is_driven_with_it() -> None:
    """Code of the scheduler that no cluster without a connector reaches."""
    with compared(nothing_reached, reaching("offloading")) as both:
        made = searching(both)
        made.connectors = CONNECTORS
        assert made.reaches()
        assert made.reaching == ["offloading"]


def test_no_plan_for_a_connector_is_driven_twice() -> None:
    """The connector is one that reaches the change, and one of those of each part of vLLM."""
    (named,) = changing(SOME).accounting
    changes = Changes((named._replace(words=frozenset({"connector"})),), ())
    with compared(nothing_reached, reaching("offloading")) as both:
        made = searching(both, changes=changes)
        made.connectors = CONNECTORS
        assert made.reaches()
        assert "offloading" in {*made.reaching} & {*made.others}
        made.fails = lambda: len(both.names) > 60
        made.run()
    plans = [name for name in both.names if name.startswith("plans")]
    assert len(plans) == len({*plans}) > 10


def nothing_reached(workload: Workload) -> Result:
    return result(workload.name)


def test_a_search_whose_time_ends_while_it_looks_reached_nothing() -> None:
    with compared(nothing, nothing) as found:
        made = searching(found, until=time.monotonic() - 1)
        assert not made.reaches()
    assert made.cut_short


def test_the_time_that_is_kept_for_shrinking_is_used_where_there_is_nothing_to_shrink() -> None:
    until = time.monotonic() - 1
    with compared(nothing, nothing) as found:
        made = searching(found, until=until, longest=until + 6000, fails=some_presets())
        made.run()
    assert found.names
    with compared(nothing, shows(CRASH, reached=(SOME,))) as found:
        made = searching(found, until=until, longest=until + 6000, fails=lambda: False)
        made.run()
    assert found.introduced
    assert len(found.names) <= search.TRACES_AT_ONCE


def test_clusters_with_many_named_features_are_made_from_few_subsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 19 features, which half a million subsets have."""
    looked_at: list[tuple[str, ...]] = []

    def subsets(of: list[str], size: int) -> Iterator[tuple[str, ...]]:
        for each in combinations(of, size):
            looked_at.append(each)
            yield each

    some = [workload.cluster for workload in workloads.of_presets(0)[:4]]
    monkeypatch.setattr(named_features, "combinations", subsets)
    monkeypatch.setattr(named_features, "clusters_with", lambda *_: some)
    first = next(named_features.combined(frozenset(named_features.NAMES), 0))
    assert first.name == "episodes of combined-1, part 1"
    assert len(looked_at) == named_features.COMBINED // len(some)


def test_what_costs_more_is_weighed_before_the_time_is_spent() -> None:
    """Head hits fewer tokens in each run, and the search ends with its time."""

    def hits(number: int) -> Callable[[Workload], Result]:
        record = Record(marks=(number,), counts={"tokens hit": number}, whole=True)
        return lambda each: replace(nothing(each), records=(record,) * 4)

    with compared(hits(6), hits(4)) as found:
        made = searching(found, fails=some_presets())
        made.run()
    assert [each.what for each in made.weighing.told] == ["tokens hit"]
    assert made.weighing.told[0].runs < len(found.names)


@pytest.mark.parametrize(("left_s", "number"), [(100.0, 4), (25.0, 2), (3.0, 1)])
def test_no_more_workloads_are_begun_at_once_than_end_in_time(
    left_s: float, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with compared(nothing, nothing) as found:
        made = searching(found)
    monkeypatch.setattr(made, "_left_s", lambda: left_s)
    assert made._at_once("plans", 4) == 4
    made._took["plans"] = 3, 30.0
    assert made._at_once("plans", 4) == number
