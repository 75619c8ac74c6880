"""The calls with which vLLM serves requests, as choices: of an engine that is driven, and of one
that is watched. Each hook notes what a call does, and judges nothing."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any

from vllm.v1.request import RequestStatus

from kvproof.live.arguments import Given
from kvproof.live.observer.hooks import Arguments, Hooks
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Preempt
from kvproof.model.step import Allocation

RUNNING = RequestStatus.RUNNING

Noting = Generator[Arguments | None, Any, None]


class CallNotes:
    """What the calls inside one event do. `choices` are what it does to requests, `allocations`
    what was predicted for them and taken. `needy` is a request that did not fit, and got no blocks
    later."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []
        self.allocations: list[Allocation] = []
        self.needy = ""


class ServingCalls(ABC):
    """Hooks around the methods with which one engine serves requests. vLLM is at work on
    `request`: when it gets blocks, it `runs`, or it is `fresh` and has none yet."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.name = name
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.managers = tuple(self.manager.coordinator.single_type_managers)
        self.queue = self.manager.block_pool.free_block_queue
        self.of_allocation = Given(self.manager.allocate_slots)
        self.of_prediction = Given(self.manager.coordinator.get_num_blocks_to_allocate)
        self.request: Any = None
        self.runs = self.fresh = False
        self.predicted: int | None = None
        self.free = 0

    @property
    @abstractmethod
    def event(self) -> CallNotes:
        """The notes of the event that runs now."""

    def attach(self, hooks: Hooks) -> None:
        """Put the hooks around the methods, which are parts of events."""
        hooks.add(self.scheduler, "_preempt_request", self.preempts)
        hooks.add(self.scheduler, "_update_waiting_for_remote_kv", self.loaded)
        hooks.add_short(self.manager, "allocate_slots", self.will_allocate, self.has_allocated)
        hooks.add_short(self.manager.coordinator, "get_num_blocks_to_allocate", None, self.predicts)

    def preempts(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A request loses its blocks to another one."""
        self.event.choices.append(Preempt(request.request_id, self.event.needy))
        yield None

    def loaded(self, request: Any, *_: Any, **__: Any) -> Noting:
        """A load beside the steps is over. Its blocks are cached or freed now."""
        self.event.choices.append(FinishLoad(request.request_id))
        yield None

    def predicts(self, blocks: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """How many blocks an allocation needs. The cap of an admission is another number."""
        if not self.of_prediction.get(args, kwargs, "apply_admission_cap", False):
            self.predicted, self.free = blocks, self.queue.num_free_blocks

    def will_allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A request is about to get blocks."""
        request = self.request = args[0] if args else kwargs["request"]
        self.runs, self.fresh = request.status is RUNNING, False
        if not self.runs:
            self.may_admit(request)

    def may_admit(self, request: Any) -> None:
        """A request that does not run is about to get blocks."""
        name = request.request_id
        self.fresh = not any(each.req_to_blocks.get(name) for each in self.managers)

    @abstractmethod
    def has_allocated(self, allocated: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A request got blocks, or None."""

    def chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Admit | Compute]:
        """What this allocation is for."""
        name, chosen = self.request.request_id, list[Admit | Compute]()
        given = self.of_allocation.get
        if self.fresh:
            hit = given(args, kwargs, "num_new_computed_tokens", 0)
            external = given(args, kwargs, "num_external_computed_tokens", 0)
            chosen.append(Admit(name, hit, external))
        new = given(args, kwargs, "num_new_tokens", 0)
        return [*chosen, Compute(name, new)] if new else chosen

    def note_allocation(self, predicted: int | None, taken: int) -> None:
        """An allocation has succeeded."""
        name = self.request.request_id
        if self.event.needy == name:
            self.event.needy = ""
        if predicted is not None:
            self.event.allocations.append(Allocation(self.name, name, predicted, taken))
