"""The event vocabulary, the same for the model and for live vLLM.

A *stimulus* is an event as the environment sends it. A `Schedule` stimulus has no `chose`; the
machine adds the choices of its scheduler, and a trace records the event with these choices.

A choice records the blocks that it took and freed. A *bare* event has no blocks, only the decisions
(which request, how many tokens). A machine that takes a bare event chooses the blocks by its own
policy.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, get_args

from msgspec import Meta, Struct
from msgspec.structs import asdict, force_setattr, replace

COUNT_MAX = 2**31 - 1
"""The largest number of tokens and the largest block id in an event."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=COUNT_MAX)]

Lists: TypeAlias = tuple[tuple[Count, ...], ...]
"""One ordered list of block ids for each group. `()` means: not recorded."""

BLOCKS = ("hit", "taken", "freed")
"""The fields of a choice that are lists of blocks."""


class _Recorded(
    Struct,
    frozen=True,
    tag=True,
    tag_field="type",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """An event or a choice. As JSON it is an object that names its type; fields with their default
    value are left out."""


class Accepted(dict[str, int]):
    """A mapping from the name of each request with accepted draft tokens to their number, in the
    order of the step. It is never changed, so it can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


NONE_ACCEPTED: Final = Accepted()


class Admit(_Recorded, frozen=True):
    """Admit a waiting request, with a local hit and with tokens that a connector will load.

    `hit` are the cached blocks of the hit, in table order, null where the request needs no block.
    `taken` are the free blocks for the connector's tokens, in the order taken.
    """

    request: str
    local_hit: Count
    external: Count
    hit: Lists = ()
    taken: Lists = ()


class FinishLoad(_Recorded, frozen=True):
    """Finish a load: cache its blocks, or free them if the load failed. `freed` are the freed
    blocks, in the order freed."""

    request: str
    freed: Lists = ()


class Compute(_Recorded, frozen=True):
    """Schedule the next tokens of a request. The request first frees the blocks that its computed
    tokens no longer need (`freed`, in the order freed), then takes the missing blocks (`taken`). A
    block for a copy is in `taken`, too."""

    request: str
    tokens: Count
    taken: Lists = ()
    freed: Lists = ()


class Preempt(_Recorded, frozen=True):
    """Preempt a running request, because `needy` does not fit: free all its blocks; it starts over.
    `freed` are the blocks that `needy` no longer needs, then all blocks of the preempted request,
    in the order freed."""

    request: str
    needy: str
    freed: Lists = ()


class Release(_Recorded, frozen=True):
    """Free the blocks that a request's computed tokens no longer need, although the request does
    not fit and no other request is preempted."""

    request: str
    freed: Lists = ()


Choice: TypeAlias = Admit | FinishLoad | Compute | Preempt | Release


class Submit(_Recorded, frozen=True):
    """A job arrives at an engine (on D: with P's `kv_transfer_params`)."""

    engine: str
    request: str


class Schedule(_Recorded, frozen=True):
    """One scheduler step. The worker executes it at once: all reads and writes of its tokens."""

    engine: str
    chose: tuple[Choice, ...] | None = None


class Complete(_Recorded, frozen=True):
    """The step's output reaches the scheduler: tokens are sampled, requests finish. `accepted` has
    the number of accepted draft tokens of each request that has some, in the order of the step.
    `failed` is the request whose load from a store failed in this step (see `request_ends`)."""

    engine: str
    accepted: Mapping[str, Count] = NONE_ACCEPTED
    failed: str = ""

    def __post_init__(self) -> None:
        if self.accepted is not NONE_ACCEPTED:
            # One object for "none", because a default is recognised by its identity.
            force_setattr(self, "accepted", Accepted(self.accepted) or NONE_ACCEPTED)


class TransferDone(_Recorded, frozen=True):
    """All blocks of a transfer are copied, or none is needed, and both sides have the report."""

    request: str


class TransferFail(_Recorded, frozen=True):
    """The read failed, so D's load has failed. P receives no report."""

    request: str


class TransferLost(_Recorded, frozen=True):
    """No report of this read's end will arrive."""

    request: str


class Abort(_Recorded, frozen=True):
    """The user aborts a request on an engine."""

    engine: str
    request: str


class LeaseExpire(_Recorded, frozen=True):
    """P's lease on a request's blocks ends: P no longer waits for D to read them."""

    request: str


class Continue(_Recorded, frozen=True):
    """The next part of a session's prompt arrives, or the user ends the session."""

    engine: str
    request: str


class StrayReport(_Recorded, frozen=True):
    """A connector's worker reports the end of a transfer a second time, or after the request was
    removed. D's worker reports a finished receive, P's a finished send."""

    engine: str
    request: str


class Evict(_Recorded, frozen=True):
    """The cache entry of a free block is removed."""

    engine: str
    block: Count


class ResetPrefixCache(_Recorded, frozen=True):
    """All cache entries of an idle engine are removed."""

    engine: str


class ResetRunning(_Recorded, frozen=True):
    """All running requests are preempted, and all cache entries are removed."""

    engine: str


Event: TypeAlias = (
    Submit
    | Schedule
    | Complete
    | TransferDone
    | TransferFail
    | TransferLost
    | Abort
    | LeaseExpire
    | Continue
    | StrayReport
    | Evict
    | ResetPrefixCache
    | ResetRunning
)

EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}
"""The kinds of events, by name."""


def stimulus(event: Event) -> Event:
    """The event as the environment sends it."""
    return replace(event, chose=None) if isinstance(event, Schedule) else event


def bare_choice(choice: Choice) -> Choice:
    """The choice without its blocks."""
    unrecorded: dict[str, Any] = {name: () for name in BLOCKS if getattr(choice, name, ())}
    return replace(choice, **unrecorded) if unrecorded else choice


def bare(event: Event) -> Event:
    """The event without the blocks of its choices."""
    if not isinstance(event, Schedule) or event.chose is None:
        return event
    return replace(event, chose=tuple(map(bare_choice, event.chose)))


def matches_recorded(recorded: Event, event: Event) -> bool:
    """Whether an event equals a recorded one. Blocks are compared only where the record has
    them."""
    return recorded == as_recorded(recorded, event)


def as_recorded(recorded: Event, event: Event) -> Event:
    """The event without those block lists that the recorded event does not have."""
    if not isinstance(event, Schedule) or not isinstance(recorded, Schedule):
        return event
    before, chose = recorded.chose or (), event.chose or ()
    if len(before) != len(chose):
        return event
    return replace(event, chose=tuple(map(_choice_as_recorded, before, chose)))


def _choice_as_recorded(recorded: Choice, choice: Choice) -> Choice:
    unrecorded: dict[str, Any] = {
        name: () for name in BLOCKS if getattr(choice, name, ()) and not getattr(recorded, name, ())
    }
    return replace(choice, **unrecorded)


def describe(event: Event | Choice) -> str:
    """The decisions of an event in one readable line. The state changes show the blocks."""
    if isinstance(event, Schedule):
        chose = ", ".join(describe(c) for c in event.chose or ()) or "nothing"
        return f"Schedule({event.engine}): {chose}"
    if isinstance(event, Complete):
        drafts = "".join(f", {count} accepted of {name}" for name, count in event.accepted.items())
        failed = f", load of {event.failed} failed" if event.failed else ""
        return f"Complete({event.engine}{drafts}{failed})"
    if isinstance(event, Preempt):
        needy = "itself" if event.needy == event.request else event.needy
        return f"Preempt({event.request}{f' for {needy}' if needy else ''})"
    fields = ", ".join(f"{v}" for n, v in asdict(event).items() if n not in BLOCKS)
    return f"{type(event).__name__}({fields})"
