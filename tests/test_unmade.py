"""A vLLM that dies while its engines are made: that is a break. A refusal is none, and neither is
what only the sizes that kvproof chose show."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

pytest.importorskip("vllm")

from kvproof.gate.difference.protocol import Drive, RecordRun
from kvproof.gate.difference.record import Taken
from kvproof.gate.difference.workload import Again, Follow, Play
from kvproof.gate.side import connector_plans, requests
from kvproof.gate.side import plans as side_plans
from kvproof.live import user_sizes
from kvproof.model.events import Submit
from kvproof.model.presets import CLUSTERS
from tests.cover import PRESETS, others_nightly
from tests.watching import is_undriven

pytestmark = pytest.mark.live

RUN = Follow("a run", CLUSTERS["full"], (Submit("E", "r0"),))


def dying(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    from vllm.v1.core.block_pool import BlockPool

    def fails(*_: Any, **__: Any) -> None:
        raise error("no block is left for the null block")

    monkeypatch.setattr(BlockPool, "__init__", fails)


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


def assuming(what: str) -> Callable[..., None]:
    """`Scheduler.__init__` with an assertion about its arguments."""
    from vllm.v1.core.sched.scheduler import Scheduler

    right: Any = Scheduler.__init__

    def assumes(
        self: Any, vllm_config: Any, kv_cache_config: Any, *given: Any, **named: Any
    ) -> None:
        scheduler, model = vllm_config.scheduler_config, vllm_config.model_config
        groups = kv_cache_config.kv_cache_groups
        holds = {
            "blocks": all(each.kv_cache_spec.block_size % 16 == 0 for each in groups),
            "pool": kv_cache_config.num_blocks > 64,
            "chunk": scheduler.max_num_batched_tokens >= scheduler.max_num_seqs,
            "tensors": bool(kv_cache_config.kv_cache_tensors),
            "heads": groups[0].kv_cache_spec.head_size >= 64 and model.get_head_size() >= 64,
            "long": scheduler.max_num_batched_tokens > 10**6,
        }
        assert holds[what]
        right(self, vllm_config, kv_cache_config, *given, **named)

    return assumes


@pytest.mark.parametrize("what", ["blocks", "pool", "chunk", "tensors", "heads"])
def test_an_engine_that_dies_of_the_sizes_that_kvproof_chose_is_none(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setattr(Scheduler, "__init__", assuming(what))
    result = requests._driven(Drive(RUN))
    assert not result.breaks
    assert result.reason.startswith("vLLM fails with the sizes that kvproof chose (AssertionError")


def test_what_fails_in_user_sizes_too_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setattr(Scheduler, "__init__", assuming("long"))
    [found] = requests._driven(Drive(RUN)).breaks
    assert found.death == "AssertionError in assumes"


@pytest.mark.parametrize("sizes", ["all", "small"])
def test_groups_that_fail_with_small_blocks_alone_are_no_death_of_a_connector(
    sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left out. What fails in all sizes is driven on both vLLMs, as a death."""
    from vllm.v1.core.sched.scheduler import Scheduler

    right: Any = Scheduler.__init__

    def assumes(self: Any, vllm_config: Any, kv_cache_config: Any, *a: Any, **named: Any) -> None:
        groups = kv_cache_config.kv_cache_groups
        small = any(each.kv_cache_spec.block_size % 16 for each in groups)
        assert len(groups) == 1 or (sizes == "small" and not small)
        right(self, vllm_config, kv_cache_config, *a, **named)

    assert not connector_plans.accepts("offloading").failing
    monkeypatch.setattr(Scheduler, "__init__", assumes)
    accepts = connector_plans.accepts("offloading")
    assert accepts.plans
    assert bool(accepts.failing) is (sizes == "all")
    for plan in accepts.failing[:1]:
        result = side_plans.driven(Play("run", "offloading", msgspec.to_builtins(plan)))
        [found], [record] = result.breaks, result.records
        assert [each.need for each in record.broken] == [found.need]


@pytest.mark.parametrize("preset", others_nightly(CLUSTERS, PRESETS))
def test_the_engines_of_each_preset_are_made_in_user_sizes(preset: str) -> None:
    if is_undriven(CLUSTERS[preset]):
        return
    made = user_sizes.made(CLUSTERS[preset])
    for node in made.nodes.values():
        caches = node.scheduler.kv_cache_config
        assert caches.kv_cache_tensors
        assert caches.num_blocks == user_sizes.BLOCKS
    made.close()


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
