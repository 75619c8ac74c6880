"""What changed code says of where it runs."""

from itertools import islice

from kvproof.gate.search.judge import not_driven
from kvproof.gate.search.named_features import (
    in_loops,
    in_plans,
    named,
    preferred,
    shared,
)
from kvproof.gate.search.workloads import of_random_clusters
from kvproof.gate.source.changes import ChangedFunction
from kvproof.gate.source.parts import TABLES


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
