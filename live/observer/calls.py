"""Records the calls by which vLLM serves requests as choices, for a driven and for a watched
engine. Each hook records the effects of a call, and judges nothing."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any

from vllm.v1.request import RequestStatus

from kvproof.live.observer.hooks import Arguments, Given, Hooks
from kvproof.model.events import Admit, Choice, Compute, FinishLoad, Preempt
from kvproof.model.step import Allocation

RUNNING = RequestStatus.RUNNING

Noting = Generator[Arguments | None, Any, None]


class CallNotes:
    """The effects of the calls inside one event. `choices` has the choices about requests, and
    `allocations` the predicted and the taken numbers of blocks. `needy` is a request that did not
    fit, and that got no blocks later in the event."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []
        self.allocations: list[Allocation] = []
        self.needy = ""


class ServingCalls(ABC):
    """Hooks around the methods with which one engine serves requests. `request` is the request that
    vLLM works on. When it gets blocks, it already `runs`, or it is `fresh` and has no blocks
    yet."""

    def __init__(self, scheduler: Any, name: str) -> None:
        self.name = name
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.managers = tuple(self.manager.coordinator.single_type_managers)
        self.queue = self.manager.block_pool.free_block_queue
        self.of_allocation = Given(self.manager.allocate_slots, "request", "num_new_tokens")
        self.of_prediction = Given(
            self.manager.coordinator.get_num_blocks_to_allocate,
            *("request_id", "num_tokens", "new_computed_blocks", "num_encoder_tokens"),
            *("total_computed_tokens", "num_local_computed_tokens", "num_tokens_main_model"),
            "apply_admission_cap",
        )
        self.request: Any = None
        self.runs = self.fresh = False
        self.predicted: int | None = None
        self.free = 0

    @property
    @abstractmethod
    def event(self) -> CallNotes:
        """The notes about the current event."""

    def attach(self, hooks: Hooks) -> None:
        """Put the hooks around the methods, which are parts of events."""
        hooks.add(self.scheduler, "_preempt_request", self.preempts)
        hooks.add(self.scheduler, "_update_waiting_for_remote_kv", self.loaded)
        hooks.add_short(self.manager, "allocate_slots", self.will_allocate, self.has_allocated)
        hooks.add_short(self.manager.coordinator, "get_num_blocks_to_allocate", None, self.predicts)

    def preempts(self, request: Any, *_: Any, **__: Any) -> Noting:
        """Record that a request loses its blocks to another one."""
        self.event.choices.append(Preempt(request.request_id, self.event.needy))
        yield None

    def loaded(self, request: Any, *_: Any, **__: Any) -> Noting:
        """Record the end of a load beside the steps: its blocks are cached or freed now."""
        self.event.choices.append(FinishLoad(request.request_id))
        yield None

    def predicts(self, blocks: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the predicted number of blocks of an allocation. The cap of an admission is
        another number and is not recorded."""
        if not self.of_prediction.get(args, kwargs, "apply_admission_cap", False):
            self.predicted, self.free = blocks, self.queue.num_free_blocks

    def will_allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Prepare for an allocation for a request."""
        request = self.request = args[0] if args else kwargs["request"]
        self.runs, self.fresh = request.status is RUNNING, False
        if not self.runs:
            self.may_admit(request)

    def may_admit(self, request: Any) -> None:
        """Prepare for an allocation for a request that does not run."""
        name = request.request_id
        self.fresh = not any(each.req_to_blocks.get(name) for each in self.managers)

    @abstractmethod
    def has_allocated(self, allocated: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the blocks that a request got, or that it got none (None)."""

    def chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Admit | Compute]:
        """The choices for which an allocation is made: an admission, the tokens of a step, or
        both."""
        name, chosen = self.request.request_id, list[Admit | Compute]()
        given = self.of_allocation.get
        if self.fresh:
            hit = given(args, kwargs, "num_new_computed_tokens", 0)
            external = given(args, kwargs, "num_external_computed_tokens", 0)
            chosen.append(Admit(name, hit, external))
        new = given(args, kwargs, "num_new_tokens", 0)
        return [*chosen, Compute(name, new)] if new else chosen

    def note_allocation(self, predicted: int | None, taken: int) -> None:
        """Record an allocation that succeeded."""
        name = self.request.request_id
        if self.event.needy == name:
            self.event.needy = ""
        if predicted is not None:
            self.event.allocations.append(Allocation(self.name, name, predicted, taken))
