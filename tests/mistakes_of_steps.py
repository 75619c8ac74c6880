"""Historical mistakes of a scheduler step, put back into real vLLM: in the order of the requests,
in what is reported to the worker, and in what is kept after it. By the name of their fault."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.mistakes import Mistake


def rewritten(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """A function of vLLM with one line of its source replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1
    names: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, names)
    return names[function.__name__]


def _managers() -> Any:
    from vllm.v1.core import single_type_kv_cache_manager

    return single_type_kv_cache_manager


def preemption_skips_the_next(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    skipping = rewritten(Scheduler.schedule, "if victim_index < req_index:", "if False:")
    patch.setattr(Scheduler, "schedule", skipping)


def preemption_is_not_reported(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        output.preempted_req_ids = set()
        return output

    patch.setattr(Scheduler, "schedule", schedule)


def load_evicts_hits(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator as Coordinator

    def one_by_one(
        self: Any,
        request_id: str,
        new_computed_blocks: Any,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        **_options: Any,
    ) -> None:
        tokens = num_local_computed_tokens, num_external_computed_tokens
        if any(request_id in manager.num_cached_block for manager in self.single_type_managers):
            return
        for manager, hits in zip(self.single_type_managers, new_computed_blocks, strict=True):
            manager.add_local_computed_blocks(request_id, hits, *tokens)
            if tokens[1]:
                manager.allocate_external_computed_blocks(request_id, *tokens)

    patch.setattr(Coordinator, "allocate_new_computed_blocks", one_by_one)


def blocks_of_loads_are_zeroed(patch: pytest.MonkeyPatch) -> None:
    manager = _managers().SingleTypeKVCacheManager
    original = manager.allocate_external_computed_blocks

    def recorded(self: Any, name: str, local: int, external: int, *_: Any, **_more: Any) -> None:
        original(self, name, local, external, record_for_zeroing=True)

    patch.setattr(manager, "allocate_external_computed_blocks", recorded)


def windows_are_not_zeroed(patch: pytest.MonkeyPatch) -> None:
    manager = _managers().SlidingWindowManager
    never = property(lambda _: False, lambda *_: None)
    patch.setattr(manager, "_record_new_block_ids", never, raising=False)


def new_blocks_are_noted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """vllm#44490 in this release: the list is filled and nobody takes it."""
    manager = _managers().SingleTypeKVCacheManager
    always = property(lambda _: True, lambda *_: None)
    patch.setattr(manager, "_record_new_block_ids", always, raising=False)
    patch.setattr(manager, "take_new_block_ids", lambda _self: [])


def worker_is_told_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """It takes the positions of its tokens from that. The model has no output, so no such fault."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._make_cached_request_data

    def cached_requests(self: Any, *args: Any, **kwargs: Any) -> Any:
        data = original(self, *args, **kwargs)
        data.num_computed_tokens = [count + 1 for count in data.num_computed_tokens]
        return data

    patch.setattr(Scheduler, "_make_cached_request_data", cached_requests)


MISTAKES = {
    change.__name__: Mistake(change, finds)
    for change, finds in (
        (preemption_skips_the_next, "room_is_used"),
        (preemption_is_not_reported, "worker_forgets_who_left"),
        (load_evicts_hits, "predicted_is_taken"),
        (blocks_of_loads_are_zeroed, "zeroed_blocks_are_new"),
        (windows_are_not_zeroed, "new_blocks_are_zeroed"),
    )
}
