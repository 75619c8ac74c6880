"""What the next step near the change is expected to show that is new, and what changed code says of
where it runs."""

from itertools import islice

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Plays, Workload, follow
from kvproof.gate.search.judge import not_driven
from kvproof.gate.search.named_features import (
    in_loops,
    in_plans,
    named,
    preferred,
    shared,
)
from kvproof.gate.search.unseen import ShownNear, unseen
from kvproof.gate.search.workloads import of_random_clusters
from kvproof.gate.source.changes import ChangedFunction
from kvproof.gate.source.parts import TABLES
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
    change = ChangedFunction("x.py", "f", 1, "changed", words=frozenset({"sliding_window", "f"}))
    features = named([change])
    assert features == {"windows"}

    def with_windows(wanted: frozenset[str]) -> int:
        chosen = islice(preferred(of_random_clusters(0), wanted), 40)
        return sum(shared(each.cluster, features) for each in chosen)

    assert with_windows(features) > with_windows(frozenset()) + 5


def changed(file: str = "v1/core/kv_cache_utils.py", *words: str) -> ChangedFunction:
    return ChangedFunction(
        file, "f", 1, "changed", part=TABLES, called=True, words=frozenset(words)
    )


def test_code_that_names_images_is_driven_in_plans_with_images() -> None:
    assert in_plans([changed("a.py", "mm_features", "offset")]) == {"images"}
    assert in_plans([changed("a.py", "encoder_cache_manager")]) == {"images"}
    assert not in_plans([changed("a.py", "num_tokens", "comm_size")])
    assert in_plans([changed("a.py", "offset")._replace(name="S._free_encoder_inputs")])


def test_code_that_names_statistics_of_prompts_is_driven_with_a_connector() -> None:
    assert in_plans([changed("a.py", "prefill_stats")]) == {"offloading"}
    assert in_plans([changed("a.py", "PrefixCacheStats")]) == {"offloading"}


def test_what_runs_on_a_device_alone_is_named() -> None:
    assert "device" not in not_driven([changed()])
    said = not_driven([changed(), changed("v1/worker/gpu_model_runner.py")])
    assert said.endswith(
        "; what is in v1/worker/gpu_model_runner.py runs with a model on its device alone"
    )


def test_code_that_names_structured_output_is_driven_in_loops_first() -> None:
    assert in_loops([changed("a.py", "request"), changed("b.py", "structured_output_manager")])
    assert in_loops([changed("a.py", "kv_connector_stats")])
    assert in_loops([changed("a.py", "outputs", "scheduler_stats")])
    assert not in_loops([changed("a.py", "num_tokens", "kv_connector_output")])


def test_what_head_has_no_more_counts_on_base() -> None:
    assert unseen([FREE, GONE], side((PLAYS, MANY)), side((PLAYS, MANY), of=GONE)) == 2 / 98
    assert unseen([FREE], side((PLAYS, FEW)), side((PLAYS, MANY))) == 1.0


def test_what_clusters_execute_must_be_known_by_random_episodes() -> None:
    few, trace = (Episodes("one", FULL), FEW), (follow(FULL, "trace", ()), MANY)
    assert side((PLAYS, MANY), few).of(FREE) == 1.0
    assert side((PLAYS, MANY), trace).of(FREE) == 1.0
