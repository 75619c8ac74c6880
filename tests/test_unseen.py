"""What the next step near the change is expected to show that is new: numbers made by hand."""

from itertools import islice

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Plays, Workload
from kvproof.gate.search.named_features import named, preferred, shared
from kvproof.gate.search.unseen import ShownNear, unseen
from kvproof.gate.search.workloads import of_random_clusters
from kvproof.gate.source.changes import ChangedFunction
from kvproof.model.config.features.registry import used_by
from kvproof.model.presets import CLUSTERS

FREE, GONE = "v1/core/block_pool.py:BlockPool.free", "v1/core/block_pool.py:BlockPool.gone"
MANY, FEW = Near(98, {"a": 97, "b": 1, "c": 2}), Near(1, {"a": 1})
PLAYS, OTHER = Plays("plans", "store"), Plays("others", "store")
FULL = CLUSTERS["full"]


def side(*results: tuple[Workload, Near], of: str = FREE) -> ShownNear:
    made = ShownNear()
    for workload, near in results:
        made.add(workload, Result(workload.name, near={of: near}))
    return made


def test_it_is_what_was_seen_once_and_one_more_by_the_number_of_steps() -> None:
    assert side((PLAYS, MANY)).of(FREE) == 2 / 98
    assert side((PLAYS, MANY), (OTHER, FEW)).of(FREE) == 2 / 99
    assert side((PLAYS, MANY), (OTHER, Near(2, {"b": 2}))).of(FREE) == 1 / 100


def test_each_feature_of_a_cluster_is_something_else_to_show() -> None:
    one, more = Episodes("one", FULL), Episodes("more", CLUSTERS["events-sparse"])
    new = used_by(more.cluster) - used_by(one.cluster)
    assert len(new) > 1
    found = side((one, Near(90, {"a": 90})), (more, Near(10, {"a": 1})))
    assert found.of(FREE) == (len(new) + 1) / 100


def test_the_function_that_is_known_least_counts() -> None:
    known = side((PLAYS, MANY))
    assert unseen([FREE], known, ShownNear()) == 2 / 98
    assert unseen([FREE, GONE], known, ShownNear()) == 1.0
    assert unseen([], known, ShownNear()) == 0.0


def test_random_clusters_with_the_features_that_the_change_names_are_preferred() -> None:
    change = ChangedFunction("x.py", "f", 1, 2, "changed", words=frozenset({"sliding_window", "f"}))
    features = named([change])
    assert features == {"windows"}

    def with_windows(wanted: frozenset[str]) -> int:
        chosen = islice(preferred(of_random_clusters(0), wanted), 40)
        return sum(shared(each.cluster, features) for each in chosen)

    assert with_windows(features) > with_windows(frozenset()) + 5
