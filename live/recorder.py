"""Records the choices of a real scheduler during a step.

The recorder wraps methods of vLLM and does not change them. It records arguments, results, and the
pool before and after, in the terms of `model.events`.
"""

import functools
from collections.abc import Callable
from inspect import unwrap
from itertools import chain
from typing import Any

from msgspec.structs import replace

from kvproof.live.block_notes import BlockNotes
from kvproof.live.damage import NoSuchBlock
from kvproof.model import block_lists, config
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Lists, Preempt, Release
from kvproof.model.step import Allocation, BlockRefusal


class AdmissionResult:
    """The result of an admission, for `model.step.Admission` and the request's state."""

    def __init__(self, request: str, hit: int, external: int, cached: Any) -> None:
        self.request = request
        self.hit = hit
        self.external = external
        self.cached = cached


class Recorder:
    """Records the choices of one scheduler. `start` begins a step. `preempted` are the requests
    preempted since the node last looked. `refused` are the requests that got no blocks in the
    step."""

    def __init__(self, cfg: config.EngineConfig, scheduler: Any, look: Callable[[], Any]) -> None:
        self.name = cfg.name
        self.scheduler = scheduler
        self.look = look
        self.choices: list[Choice] = []
        self.allocations: list[Allocation] = []
        self.admitted: list[AdmissionResult] = []
        self.needy = ""
        self.predicted = (0, 0)
        self.need_and_free = (0, 0)
        self.refused: dict[str, BlockRefusal] = {}
        self.preempted: set[str] = set()
        manager = scheduler.kv_cache_manager
        self.notes = BlockNotes(manager, cfg.partial_block_hits)
        self._around(manager, "allocate_slots", self._allocate)
        self._around(manager.coordinator, "remove_skipped_blocks", self.notes.around_skip)
        self._around(
            manager.coordinator, "allocate_new_computed_blocks", self.notes.around_admission
        )
        self._around(manager.coordinator, "allocate_new_blocks", self.notes.around_growth)
        self._around(manager.coordinator, "get_num_blocks_to_allocate", self._predict)
        self._around(scheduler, "_preempt_request", self._preempt)
        self._around(scheduler, "_update_waiting_for_remote_kv", self._finish_load)

    @staticmethod
    def _around(owner: Any, name: str, note: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            return note(original, *args, **kwargs)

        setattr(owner, name, called)

    def start(self) -> None:
        """Forget the last step."""
        self.choices, self.allocations, self.admitted = [], [], []
        self.refused = {}

    def _free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def _predict(self, original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        result = original(*args, **kwargs)
        self.need_and_free = (result, self._free())
        if not kwargs.get("apply_admission_cap"):
            self.predicted = self.need_and_free
        return result

    def _allocate(
        self, original: Callable[..., Any], request: Any, num_new_tokens: int, **kwargs: Any
    ) -> Any:
        blocks = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
        fresh = not any(blocks)
        cached = self.look() if fresh else ()
        name = request.request_id
        hit = kwargs.get("num_new_computed_tokens", 0)
        external = kwargs.get("num_external_computed_tokens", 0)
        chose: list[Admit | Compute] = [Admit(name, hit, external)] if fresh else []
        if num_new_tokens:
            chose.append(Compute(name, num_new_tokens))
        before = self.choices
        self.choices = [*before, *chose]  # a choice that kills the engine is recorded, too
        self.notes.start()
        result = original(request, num_new_tokens, **kwargs)
        if result is None:
            self.needy = name
            self.refused[name] = BlockRefusal(self.name, name, *self.need_and_free)
            kept = self.scheduler.kv_cache_manager.get_block_ids(name)
            self.choices = before if kept == blocks else [*before, Release(name, self.notes.freed)]
            return result
        for block in chain(*self.notes.tables(name)):
            if block < 0:
                code = unwrap(original).__code__
                raise NoSuchBlock(code, code.co_firstlineno, f"block {block} is not in the pool")
        self.choices = [
            *before,
            *(self._with_blocks(c, not num_new_tokens) for c in chose),
        ]
        if fresh:
            self.admitted.append(AdmissionResult(name, hit, external, cached))
        predicted, free = self.predicted
        self.allocations.append(Allocation(self.name, name, predicted, free - self._free()))
        return result

    def _with_blocks(self, choice: Admit | Compute, loads: bool) -> Choice:
        """A choice of the last allocation, with its blocks. A load computes nothing yet, so all its
        new blocks belong to the admission."""
        notes = self.notes
        if isinstance(choice, Admit):
            taken = block_lists.both(notes.brought, notes.taken) if loads else notes.brought
            return replace(choice, hit=notes.hit, taken=taken)
        return replace(choice, taken=notes.taken, freed=notes.freed)

    def _preempt(self, original: Callable[..., Any], request: Any, *args: Any, **kw: Any) -> Any:
        freed: Lists = ()
        released = self.choices[-1] if self.choices else None
        if isinstance(released, Release) and released.request == self.needy:
            freed = released.freed  # the preemption records these blocks, too
            self.choices.pop()
        choice = Preempt(request.request_id, self.needy)
        self.choices.append(choice)
        dropped, result = self._dropped(original, request, *args, **kw)
        self.preempted.add(request.request_id)
        self.choices[-1] = replace(choice, freed=block_lists.both(freed, dropped))
        return result

    def _finish_load(self, original: Callable[..., Any], request: Any) -> Any:
        choice = FinishLoad(request.request_id)
        self.choices.append(choice)
        dropped, result = self._dropped(original, request)
        self.choices[-1] = replace(choice, freed=dropped)
        return result

    def _dropped(
        self, original: Callable[..., Any], request: Any, *args: Any, **kw: Any
    ) -> tuple[Lists, Any]:
        """The blocks that a request loses in a call, and what the call returns."""
        before = self.notes.tables(request.request_id)
        result = original(request, *args, **kw)
        return block_lists.freed(before, self.notes.tables(request.request_id)), result
