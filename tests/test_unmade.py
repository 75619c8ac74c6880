"""A vLLM that dies while its engines are made: that is a break. A refusal is none, and neither is
what only the sizes that kvproof chose show."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvproof.gate.difference.protocol import Drive, RecordRun
from kvproof.gate.difference.workload import Again, Follow, Play
from kvproof.gate.side import connector_plans, requests
from kvproof.gate.side import plans as side_plans
from kvproof.live import user_sizes
from kvproof.model.events import Submit
from kvproof.model.plans.part import Taken
from kvproof.model.presets import CLUSTERS
from tests.cover import PRESETS, others_nightly
from tests.in_vllm import POOL, SCHEDULER, around, instead
from tests.watching import is_undriven

pytestmark = pytest.mark.live

RUN = Follow("a run", CLUSTERS["full"], (Submit("E", "r0"),))


def dying(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error("no block is left for the null block")

    instead(f"{POOL}.__init__", fails)(monkeypatch)


@pytest.mark.parametrize("error", [AssertionError, KeyError, TypeError])
def test_an_engine_that_dies_when_it_is_made_is_a_break(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    assert not requests._driven(Drive(RUN)).breaks
    dying(monkeypatch, error)
    result = requests._driven(Drive(RUN))
    [found] = result.breaks
    assert not result.reason
    assert (found.signature.check, found.death) == ("engine_survives", f"{error.__name__} in fails")
    assert "start" in found.finding.sentence
    assert "no block is left" in found.finding.sentence
    again = requests._driven(Drive(found.run("again")))
    assert [each.key for each in again.breaks] == [found.key]
    runs = (Taken(RUN.cluster, RUN.events),) * 3
    for workload, number in ((RUN, 1), (Again("runs", RUN.cluster, runs), 3)):
        records = requests._driven(Drive(workload)).records
        assert [[each.need for each in one.broken] for one in records] == [[found.need]] * number
    assert "cannot be made" in requests._recorded(RecordRun(found, "folder", "stem")).error


HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "blocks": lambda _, made: all(
        not g.kv_cache_spec.block_size % 16 for g in made.kv_cache_groups
    ),
    "pool": lambda _, made: made.num_blocks > 64,
    "chunk": lambda config, _: (
        config.scheduler_config.max_num_batched_tokens >= config.scheduler_config.max_num_seqs
    ),
    "tensors": lambda _, made: bool(made.kv_cache_tensors),
    "heads": lambda config, made: (
        made.kv_cache_groups[0].kv_cache_spec.head_size >= 64
        and config.model_config.get_head_size() >= 64
    ),
    "long": lambda config, _: config.scheduler_config.max_num_batched_tokens > 10**6,
}
"""What a scheduler may assume of its arguments."""


def assuming(monkeypatch: pytest.MonkeyPatch, holds: Callable[[Any, Any], bool]) -> None:
    """Let `Scheduler.__init__` assert something of its arguments."""

    def assumes(
        right: Any, self: Any, vllm_config: Any, kv_cache_config: Any, *more: Any, **named: Any
    ) -> None:
        assert holds(vllm_config, kv_cache_config)
        right(self, vllm_config, kv_cache_config, *more, **named)

    around(f"{SCHEDULER}.__init__", assumes)(monkeypatch)


@pytest.mark.parametrize("what", ["blocks", "pool", "chunk", "tensors", "heads"])
def test_an_engine_that_dies_of_the_sizes_that_kvproof_chose_is_none(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assuming(monkeypatch, HOLDS[what])
    result = requests._driven(Drive(RUN))
    assert not result.breaks
    assert result.reason.startswith("vLLM fails with the sizes that kvproof chose (AssertionError")


def test_what_fails_in_user_sizes_too_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    assuming(monkeypatch, HOLDS["long"])
    [found] = requests._driven(Drive(RUN)).breaks
    assert found.death == "AssertionError in assumes"


@pytest.mark.parametrize("sizes", ["all", "small"])
def test_groups_that_fail_with_small_blocks_alone_are_no_death_of_a_connector(
    sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left out. What fails in all sizes is driven on both vLLMs, as a death."""

    def holds(_config: Any, made: Any) -> bool:
        groups = made.kv_cache_groups
        small = any(each.kv_cache_spec.block_size % 16 for each in groups)
        return len(groups) == 1 or (sizes == "small" and not small)

    assert not connector_plans.accepts("offloading").failing
    assuming(monkeypatch, holds)
    accepts = connector_plans.accepts("offloading")
    assert accepts.plans
    assert bool(accepts.failing) is (sizes == "all")
    for plan in accepts.failing[:1]:
        result = side_plans.driven(Play("run", "offloading", plan))
        [found], [record] = result.breaks, result.records
        assert [each.need for each in record.broken] == [found.need]


@pytest.mark.parametrize("preset", others_nightly(CLUSTERS, PRESETS))
def test_the_engines_of_each_preset_are_made_in_user_sizes(preset: str) -> None:
    if is_undriven(CLUSTERS[preset]):
        return
    for made in user_sizes.made(CLUSTERS[preset]):
        assert made.kv_cache_config.kv_cache_tensors
        assert made.kv_cache_config.num_blocks == user_sizes.BLOCKS
        made.shutdown()


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RuntimeError])
def test_an_engine_that_is_refused_is_none(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    dying(monkeypatch, error)
    result = requests._driven(Drive(RUN))
    assert not result.breaks
    assert "no block is left" in result.reason


def test_a_mistake_outside_of_any_event_is_told_with_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **_how: Any) -> Any:
        raise KeyError("x")

    monkeypatch.setattr(requests, "result_of", fails)
    reason = requests._driven(Drive(RUN)).reason
    first, *lines = reason.splitlines()
    assert first == "vLLM fails outside of any event (KeyError: 'x')"
    assert lines[-1].endswith('raise KeyError("x")')
