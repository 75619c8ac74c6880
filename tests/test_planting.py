"""A fault is in effect wherever its functions are called, for the time of a run and no longer."""

import gc
import multiprocessing
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model import capacity, planting
from kvproof.model.arithmetic import counts
from kvproof.model.config import EngineConfig, Group
from kvproof.model.counting_abstraction import registry
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.allocation import without_progress
from kvproof.model.reference.scheduling import admission, preemption, resets

WITHOUT_PROGRESS = "reference.blocks.allocation:without_progress"
PREDICTED = "arithmetic.counts:attention_blocks_predicted"


def holders(function: Callable[..., Any]) -> list[object]:
    """What still holds a function of the model: modules, classes and containers of the model. The
    fault that replaces it may hold it, and so may tests and the cells of its own closure."""
    found = []
    for holder in gc.get_referrers(function):
        if isinstance(holder, dict) and "__name__" in holder:
            module = str(holder["__name__"])
            if module.startswith("kvproof.model") and not module.startswith("kvproof.model.faults"):
                found.append(holder["__name__"])
        elif isinstance(holder, tuple | set | type) or getattr(holder, "func", None) is function:
            found.append(holder)
    return found


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_leaves_no_way_to_what_it_replaces(fault: Fault) -> None:
    right = {name: planting.function_named(name) for name in fault.replaces}
    with planted(fault):
        registry.systems()
        for name in right:
            assert planting.function_named(name) is fault.replaces[name]
            assert holders(right[name]) == [], f"{name} is still held"
    assert {name: planting.function_named(name) for name in fault.replaces} == right
    assert planting.planted_now() == {}


def test_every_module_that_imported_the_function_has_the_wrong_one() -> None:
    def wrong(request: Any) -> Any:
        return request

    modules: list[Any] = [admission, preemption]
    with planting.planted({WITHOUT_PROGRESS: wrong}):
        assert {module.without_progress for module in modules} == {wrong}
    assert {module.without_progress for module in modules} == {without_progress}
    assert resets.preempted is preemption.preempted


def test_a_run_that_is_broken_off_takes_the_fault_with_it() -> None:
    before = pool.release

    def run() -> None:
        with planted(FAULTS["double_free"]):
            assert pool.release is not before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert pool.release is before


def test_a_module_that_is_imported_meanwhile_gets_the_right_one_afterwards() -> None:
    late = types.ModuleType("kvproof.model.late")
    right = counts.tail_chunk
    try:
        with planted(FAULTS["prompt_end_run_over"]):
            sys.modules[late.__name__] = late
            vars(late)["tail_chunk"] = counts.tail_chunk
        assert vars(late)["tail_chunk"] is right
    finally:
        del sys.modules[late.__name__]


def test_what_was_cached_with_a_fault_is_forgotten_with_it() -> None:
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=9)
    assert capacity.peak_blocks(engine, 4) == 2
    with planting.planted({PREDICTED: lambda *_: 7}):
        assert capacity.peak_blocks(engine, 4) > 2
    assert capacity.peak_blocks(engine, 4) == 2


def test_faults_of_different_functions_are_planted_together() -> None:
    both = FAULTS["double_free"], FAULTS["front_trim"]
    with planted(both[0]), planted(both[1]):
        assert planting.planted_now() == {**both[0].replaces, **both[1].replaces}
    with planted(*both):
        assert planting.planted_now() == {**both[0].replaces, **both[1].replaces}
    same = FAULTS["front_trim"], FAULTS["end_trim_across_ratios"]
    with pytest.raises(UsageError, match="replace the same function"), planted(*same):
        pass


def _is_planted(_: int) -> bool:
    return pool.release is FAULTS["double_free"].replaces["reference.blocks.pool:release"]


def test_a_process_that_is_forked_has_the_fault() -> None:
    fork = multiprocessing.get_context("fork")
    with planted(FAULTS["double_free"]), fork.Pool(1) as workers:
        assert workers.map(_is_planted, [0]) == [True]
    with fork.Pool(1) as workers:
        assert workers.map(_is_planted, [0]) == [False]


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("reference.blocks.pond:take", lambda *_: 0, "no module reference.blocks.pond"),
        ("reference.blocks.pool:taken", lambda *_: 0, "no function reference.blocks.pool:taken"),
        ("reference.blocks.pool:take", lambda _engine: 0, "takes other arguments"),
        ("reference.blocks.pool:take", lambda _e, _count, _more: 0, "takes other arguments"),
        ("reference.blocks.allocation:grow", lambda *_: 0, "takes other arguments"),
        ("reference.blocks.pool:take", capacity.fits, "by a function of the model"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused(
    name: str, wrong: Callable[..., Any], why: str
) -> None:
    with pytest.raises(UsageError, match=rf"{why}.*\. Use "):
        planting.check(name, wrong)
