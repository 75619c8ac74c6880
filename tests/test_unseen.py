"""How well the runs know what is near the change: numbers made by hand."""

from kvproof.gate.difference.compare import Results
from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Plays, Workload, follow
from kvproof.gate.search.named_features import named, preferred, shared
from kvproof.gate.search.unseen import unseen
from kvproof.gate.search.workloads import of_random_clusters
from kvproof.gate.source.changes import ChangedFunction
from kvproof.model.presets import CLUSTERS

FREE = ChangedFunction("v1/core/block_pool.py", "BlockPool.free", 1, 9, "changed")
GONE = ChangedFunction("v1/core/block_pool.py", "BlockPool.gone", 1, 9, "removed")
MANY, FEW = Near(98, {"a": 97, "b": 1, "c": 2}), Near(1, {"a": 1})
FULL, WINDOWS = CLUSTERS["full"], CLUSTERS["events-sparse"]


def chance(
    functions: list[ChangedFunction],
    *results: tuple[Workload, Near],
    on_base: tuple[tuple[Workload, Near], ...] = (),
    of: ChangedFunction = FREE,
) -> float:
    sides = [
        Results({one.name: Result(one.name, near={of.key: near}) for one, near in each})
        for each in (results, on_base)
    ]
    return unseen(functions, {one.name: one for one, _ in (*results, *on_base)}, sides)


RUN, OTHER, MORE = Episodes("one", FULL), Episodes("two", FULL), Episodes("three", WINDOWS)


def test_it_is_what_was_seen_once_and_one_more_by_the_number_of_steps() -> None:
    assert chance([FREE], (RUN, MANY)) == 2 / 98
    assert chance([FREE], (RUN, MANY), (OTHER, FEW)) == 2 / 99
    assert chance([FREE], (RUN, MANY), (OTHER, Near(2, {"b": 2}))) == 1 / 100


def test_a_trace_is_no_random_sample() -> None:
    assert chance([FREE], (RUN, FEW), (follow(FULL, "trace", ()), MANY)) == 1.0


def test_few_steps_that_are_all_alike_say_little() -> None:
    assert chance([FREE], (RUN, Near(4, {"a": 4}))) == 1 / 4
    assert chance([FREE], (RUN, FEW)) == 1.0


def test_the_function_that_is_known_least_counts() -> None:
    assert chance([FREE, GONE], (RUN, MANY)) == 1.0
    assert chance([], (RUN, MANY)) == 0.0


def test_what_head_has_no_more_counts_on_base() -> None:
    assert chance([GONE], of=GONE, on_base=((RUN, MANY),)) == 2 / 98
    assert chance([FREE], (RUN, FEW), on_base=((RUN, MANY),)) == 1.0


def test_each_feature_that_the_change_names_counts_by_itself() -> None:
    function = FREE._replace(words=frozenset({"sliding_window", "self"}))
    assert named([function]) == {"windows"}
    assert chance([function], (RUN, MANY)) == 1.0
    assert chance([function], (RUN, MANY), (MORE, Near(10, {"a": 10}))) == 1 / 10


def test_what_clusters_execute_must_be_known_by_them() -> None:
    """A connector has no windows; yet once a trace executes the change, random clusters must."""
    function = FREE._replace(words=frozenset({"sliding_window"}))
    plays = Plays("plans", "store")
    assert chance([function], (plays, MANY)) == 2 / 98
    assert chance([function], (plays, MANY), (MORE, Near(3, {"x": 3}))) == 1 / 3
    assert chance([function], (plays, MANY), (follow(FULL, "trace", ()), MANY)) == 1.0


def test_random_clusters_with_the_named_features_are_preferred() -> None:
    def some(features: frozenset[str]) -> list[int]:
        chosen = preferred(of_random_clusters(0), features)
        return [shared(next(chosen).cluster, frozenset({"windows"})) for _ in range(40)]

    assert sum(some(frozenset({"windows"}))) > sum(some(frozenset())) + 5
