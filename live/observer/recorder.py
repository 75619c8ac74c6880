"""The choices of a driven scheduler, with the blocks of each: those of the hit, those taken and
those freed.

Blocks are read from the block tables between the parts of an allocation. Those that leave the
tables in the first part are freed; those that the last part adds are taken. A copy of a running
state is in no table and is found among the pending copies.
"""

from collections.abc import Callable
from inspect import unwrap
from itertools import chain
from typing import Any

from msgspec.structs import replace

from kvproof.live import adapt
from kvproof.live.death import NoSuchBlock
from kvproof.live.observer.calls import CallNotes, Noting, ServingCalls
from kvproof.live.observer.hooks import Hooks
from kvproof.model import block_lists, config
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Admit, Choice, Compute, Lists, Release
from kvproof.model.step import BlockRefusal

EVENTS = (
    "add_request",
    "schedule",
    "update_from_output",
    "finish_requests",
    "reset_prefix_cache",
)
"""The methods of a scheduler that the driver calls. All that is recorded happens in them."""


class Recorder(ServingCalls):
    """Records the choices of one scheduler. `start` begins a step. `preempted` are the requests
    that were preempted since the node last read it. `admitted` are the admissions of the step, each
    with the cache before it. `refused` are the requests that got no blocks in the step. `look`
    reads the cache, as an admission finds it."""

    def __init__(self, cfg: config.EngineConfig, scheduler: Any, look: Callable[[], Any]) -> None:
        super().__init__(scheduler, cfg.name)
        self.look = look
        self.partial = cfg.partial_block_hits
        self.preempted: set[str] = set()
        self.need_and_free = (0, 0)
        self.start()
        self._begin_allocation()
        hooks = Hooks(lambda *_: None, _raise, _drift)
        coordinator = self.manager.coordinator
        for name in EVENTS:
            hooks.add(scheduler, name, _anything, event=True)
        self.attach(hooks)
        hooks.add_short(coordinator, "allocate_new_computed_blocks", None, self._computed)
        hooks.add_short(coordinator, "allocate_new_blocks", self._will_grow, self._grows)

    def start(self) -> None:
        """Forget the notes about the last step."""
        self.notes = CallNotes()
        self.admitted: list[tuple[Admit, Any]] = []
        self.refused: dict[str, BlockRefusal] = {}

    @property
    def event(self) -> CallNotes:
        return self.notes

    def tables(self, name: str) -> Lists:
        """The block tables of a request."""
        return tuple(map(tuple, self.manager.get_block_ids(name)))

    # An allocation, and its parts.

    def _begin_allocation(self) -> None:
        nothing: Lists = ((),) * len(self.managers)
        self._hit = self._brought = self._taken = self._freed = nothing

    def _computed(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the blocks of a hit, and those for the connector's tokens."""
        hit = args[1] if len(args) > 1 else kwargs["new_computed_blocks"]
        tables = self.tables(_request_id(args, kwargs))
        self._hit, self._brought = block_lists.split(tables, [len(blocks) for blocks in hit])

    def _will_grow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the blocks that were freed because the computed tokens no longer need them."""
        self._before_part = self.tables(_request_id(args, kwargs))
        self._freed = block_lists.freed(self._held, self._before_part)
        self._pending = self._copies()

    def _grows(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the blocks that a request takes for its tokens."""
        copies = [copy for copy in self._copies() if copy not in self._pending]
        tables = self.tables(_request_id(args, kwargs))
        self._taken = block_lists.taken(self._before_part, tables, copies)

    def _copies(self) -> list[tuple[int, int, int]]:
        """The copies that wait for the worker, as group, source block and target block."""
        return [
            (index, source.block_id, copy.block_id)
            for index, manager in enumerate(self.managers)
            for source, copy in adapt.pending_copies(manager, self.partial)
        ]

    def predicts(self, blocks: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().predicts(blocks, args, kwargs)
        self.need_and_free = blocks, self.queue.num_free_blocks

    def will_allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().will_allocate(args, kwargs)
        self._begin_allocation()
        self._held = self.tables(self.request.request_id)
        self._cached = self.look() if self.fresh else ()
        self._before = list(self.event.choices)
        # a choice that kills the engine is recorded, too
        self.event.choices += self.chosen(args, kwargs)

    def has_allocated(self, allocated: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        predicted, self.predicted = self.predicted, None
        name, event = self.request.request_id, self.event
        now = self.tables(name)
        if allocated is None:
            event.needy = name
            self.refused[name] = BlockRefusal(self.name, name, *self.need_and_free)
            freed = block_lists.freed(self._held, now)
            released = [] if now == self._held else [Release(name, freed)]
            event.choices = [*self._before, *released]
            return
        for block in chain(*now):
            if block < 0:
                code = unwrap(self.manager.allocate_slots).__code__
                raise NoSuchBlock(code, code.co_firstlineno, f"block {block} is not in the pool")
        chosen = self.chosen(args, kwargs)
        loads = not any(isinstance(each, Compute) for each in chosen)
        event.choices = [*self._before, *(self._with_blocks(each, loads) for each in chosen)]
        self.admitted += [(c, self._cached) for c in chosen if isinstance(c, Admit)]
        self.note_allocation(predicted, self.free - self.queue.num_free_blocks)

    def _with_blocks(self, choice: Admit | Compute, loads: bool) -> Choice:
        """A choice of this allocation, with its blocks. A load computes nothing yet, so all its new
        blocks belong to the admission."""
        if isinstance(choice, Admit):
            taken = block_lists.both(self._brought, self._taken) if loads else self._brought
            return replace(choice, hit=self._hit, taken=taken)
        return replace(choice, taken=self._taken, freed=self._freed)

    # Requests that lose blocks.

    def preempts(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
        freed: Lists = ()
        released = self.event.choices[-1] if self.event.choices else None
        if isinstance(released, Release) and released.request == self.event.needy:
            freed = released.freed  # the preemption records these blocks, too
            self.event.choices.pop()
        yield from self._losing(request, super().preempts(request, *args, **kwargs), freed)
        self.preempted.add(request.request_id)

    def loaded(self, request: Any, *args: Any, **kwargs: Any) -> Noting:
        yield from self._losing(request, super().loaded(request, *args, **kwargs))

    def _losing(self, request: Any, call: Noting, freed: Lists = ()) -> Noting:
        """The last choice of a call, with the blocks that the request has lost in it."""
        before = self.tables(request.request_id)
        yield from call
        dropped = block_lists.freed(before, self.tables(request.request_id))
        choice: Any = self.event.choices[-1]
        self.event.choices[-1] = replace(choice, freed=block_lists.both(freed, dropped))


def _request_id(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    name: str = args[0] if args else kwargs["request_id"]
    return name


def _anything(*_: Any, **__: Any) -> Noting:
    yield None


def _raise(error: BaseException) -> None:
    """Raise an exception of kvproof, or damage that a hook has found, which ends the run (see
    `blame`)."""
    raise error


def _drift(why: str) -> None:
    """Raise AdapterDrift, because the engine was changed by something other than the driver."""
    raise AdapterDrift(f"The recorder does not fit: {why}", "Scheduler")
