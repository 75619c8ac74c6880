"""The event vocabulary, the same for the model and for live vLLM.

A *stimulus* is an event as the environment gives it. `Schedule` is a stimulus without `chose`;
the machine fills in what its scheduler chose, and the filled-in event is what a trace holds.

A choice says which blocks it took and freed. A *bare* event leaves that out: it has the decisions
only (who, how many tokens), and a machine that takes it chooses the blocks by its own policy.
"""

from typing import Any, NamedTuple, TypeAlias

Lists: TypeAlias = tuple[tuple[int, ...], ...]
"""One list of block ids a group, in order. `()` means: not said."""

BLOCKS = ("hit", "taken", "freed")
"""The fields of a choice that are lists of blocks."""


class Admit(NamedTuple):
    """Give a waiting request its first blocks: a local hit, and tokens a connector will bring.

    `hit` are the cached blocks it was given, in table order, null where it needs none; `taken` the
    free blocks for what the connector brings, in the order taken.
    """

    request: str
    local_hit: int
    external: int
    hit: Lists = ()
    taken: Lists = ()


class FinishLoad(NamedTuple):
    """Take over a finished load: its blocks may be cached now (or are dropped if it failed).
    What is dropped is `freed`, in the order released."""

    request: str
    freed: Lists = ()


class Compute(NamedTuple):
    """Schedule the next tokens of a request. It frees the blocks that its computed tokens have left
    behind, in the order released, then takes those it lacks. A block for a copy is taken, too."""

    request: str
    tokens: int
    taken: Lists = ()
    freed: Lists = ()


class Preempt(NamedTuple):
    """Take all blocks from a running request, because `needy` does not fit; it starts over. `freed`
    are the blocks that `needy` has left behind, then all of the request's, as released."""

    request: str
    needy: str
    freed: Lists = ()


class Release(NamedTuple):
    """Let go of the blocks that a request's computed tokens have left behind, though it does not
    fit and nobody is preempted for it."""

    request: str
    freed: Lists = ()


Choice: TypeAlias = Admit | FinishLoad | Compute | Preempt | Release


class Submit(NamedTuple):
    """A job arrives at an engine (on D: with what P says of its blocks)."""

    engine: str
    request: str


class Schedule(NamedTuple):
    """One scheduler step. The worker runs it at once: all reads and writes of its tokens."""

    engine: str
    chose: tuple[Choice, ...] | None = None


class Complete(NamedTuple):
    """The step's output reaches the scheduler: tokens are sampled, requests finish. `accepted` has
    the requests of which drafts were accepted, in the order of the step, and how many. `failed` is
    the request for which a store could not bring what this step loaded (see `failed_load`)."""

    engine: str
    accepted: tuple[tuple[str, int], ...] = ()
    failed: str = ""


class TransferDone(NamedTuple):
    """All blocks of a transfer are copied, or none is needed, and both sides know."""

    request: str


class TransferFail(NamedTuple):
    """D could not read; its load has failed. P is not told."""

    request: str


class TransferLost(NamedTuple):
    """The end of a read will never be reported."""

    request: str


class Abort(NamedTuple):
    """The user gives up a request on an engine."""

    engine: str
    request: str


class LeaseExpire(NamedTuple):
    """P gives up waiting for D to read a request's blocks."""

    request: str


class Continue(NamedTuple):
    """The next part of a session's prompt arrives, or word that there is none."""

    engine: str
    request: str


class StrayReport(NamedTuple):
    """A connector's worker reports the end of a transfer once more, or after its request is gone:
    D's that it has received, P's that it has sent."""

    engine: str
    request: str


class Evict(NamedTuple):
    """The cache entry of a free block is dropped."""

    engine: str
    block: int


class ResetPrefixCache(NamedTuple):
    """All cache entries of an idle engine are dropped."""

    engine: str


class ResetRunning(NamedTuple):
    """All running requests are preempted, and all cache entries are dropped."""

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

EVENTS: dict[str, Any] = {
    c.__name__: c
    for c in (
        Submit,
        Schedule,
        Complete,
        TransferDone,
        TransferFail,
        TransferLost,
        Abort,
        LeaseExpire,
        Continue,
        StrayReport,
        Evict,
        ResetPrefixCache,
        ResetRunning,
    )
}
CHOICES: dict[str, Any] = {c.__name__: c for c in (Admit, FinishLoad, Compute, Preempt, Release)}


def _same(one: Any, other: object) -> bool:
    return isinstance(other, type(one)) and tuple(one) == tuple(other)


for _kind in (*EVENTS.values(), *CHOICES.values()):
    # As tuples, events of different kinds with the same fields would be equal.
    _kind.__eq__ = _same
    _kind.__ne__ = lambda one, other: not _same(one, other)
    _kind.__hash__ = lambda one: hash((type(one).__name__, *one))


def stimulus(event: Event) -> Event:
    """The event as the environment gave it."""
    return event._replace(chose=None) if isinstance(event, Schedule) else event


def bare_choice(choice: Choice) -> Choice:
    """What a choice decided, without the blocks."""
    unsaid: dict[str, Any] = {name: () for name in BLOCKS if getattr(choice, name, ())}
    return choice._replace(**unsaid) if unsaid else choice


def bare(event: Event) -> Event:
    """What an event decided, without the blocks."""
    if not isinstance(event, Schedule) or event.chose is None:
        return event
    return event._replace(chose=tuple(map(bare_choice, event.chose)))


def told_alike(recorded: Event, event: Event) -> bool:
    """Whether an event is one that was recorded, as far as that says which blocks were meant."""
    return recorded == as_told(recorded, event)


def as_told(recorded: Event, event: Event) -> Event:
    """The event without the blocks that a recorded one leaves unsaid."""
    if not isinstance(event, Schedule) or not isinstance(recorded, Schedule):
        return event
    said, chose = recorded.chose or (), event.chose or ()
    if len(said) != len(chose):
        return event
    return event._replace(chose=tuple(map(_choice_as_told, said, chose)))


def _choice_as_told(recorded: Choice, choice: Choice) -> Choice:
    unsaid: dict[str, Any] = {
        name: () for name in BLOCKS if name in choice._fields and not getattr(recorded, name, ())
    }
    return choice._replace(**unsaid)


def describe(event: Event | Choice) -> str:
    """One line a person can read: what was decided. The blocks are seen in what it changed."""
    if isinstance(event, Schedule):
        chose = ", ".join(describe(c) for c in event.chose or ()) or "nothing"
        return f"Schedule({event.engine}): {chose}"
    if isinstance(event, Complete):
        drafts = "".join(f", {count} accepted of {name}" for name, count in event.accepted)
        failed = f", load of {event.failed} failed" if event.failed else ""
        return f"Complete({event.engine}{drafts}{failed})"
    fields = ", ".join(f"{v}" for n, v in event._asdict().items() if n not in BLOCKS)
    return f"{type(event).__name__}({fields})"
