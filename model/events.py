"""The event vocabulary, the same for the model and for live vLLM.

A *stimulus* is an event as the environment gives it. `Schedule` is a stimulus without `chose`;
the machine fills in what its scheduler chose, and the filled-in event is what a trace holds.
"""

from typing import Any, NamedTuple, TypeAlias

from kvproof.model.errors import UsageError, unknown


class Admit(NamedTuple):
    """Give a waiting request its first blocks: a local hit, and tokens a connector will bring."""

    request: str
    local_hit: int
    external: int


class Adopt(NamedTuple):
    """Take over a finished load: its blocks may be cached now (or are dropped if it failed)."""

    request: str


class Compute(NamedTuple):
    """Schedule the next tokens of a request."""

    request: str
    tokens: int


class Preempt(NamedTuple):
    """Take all blocks from a running request, because `needy` does not fit; it starts over."""

    request: str
    needy: str


class Release(NamedTuple):
    """Let go of the blocks that a request's computed tokens have left behind, though it does not
    fit and nobody is preempted for it."""

    request: str


Choice: TypeAlias = Admit | Adopt | Compute | Preempt | Release


class Submit(NamedTuple):
    """A job arrives at an engine (on D: with what P handed over)."""

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
    """D has read all blocks of a hand-over and P has been told."""

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
CHOICES: dict[str, Any] = {c.__name__: c for c in (Admit, Adopt, Compute, Preempt, Release)}


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


def describe(event: Event | Choice) -> str:
    """One line a person can read."""
    if isinstance(event, Schedule):
        chose = ", ".join(describe(c) for c in event.chose or ()) or "nothing"
        return f"Schedule({event.engine}): {chose}"
    if isinstance(event, Complete):
        drafts = "".join(f", {count} accepted of {name}" for name, count in event.accepted)
        failed = f", load of {event.failed} failed" if event.failed else ""
        return f"Complete({event.engine}{drafts}{failed})"
    fields = ", ".join(f"{v}" for v in event)
    return f"{type(event).__name__}({fields})"


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain data."""
    data = {"type": type(event).__name__, **event._asdict()}
    if isinstance(event, Schedule):
        data["chose"] = [{"type": type(c).__name__, **c._asdict()} for c in event.chose or ()]
    if isinstance(event, Complete):
        data["accepted"] = dict(event.accepted)
        if not event.accepted:
            del data["accepted"]
        if not event.failed:
            del data["failed"]
    return data


def _build(table: dict[str, Any], what: str, data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise UsageError(f"{data!r} is not {what}. Write an object with a field type.")
    kind = table.get(data["type"])
    if kind is None:
        raise unknown(what, data["type"], table)
    fields = {k: v for k, v in data.items() if k != "type"}
    try:
        event = kind(**fields)
    except TypeError as error:
        raise UsageError(
            f"The fields of {what} {data['type']} are wrong ({error}). "
            f"Write {', '.join(kind._fields)}."
        ) from error
    for name, value in event._asdict().items():
        number = name in ("local_hit", "external", "tokens", "block")
        if name in ("chose", "accepted"):
            continue
        if not isinstance(value, int if number else str):
            raise UsageError(
                f"The field {name} of {what} {data['type']} is {value!r}. "
                f"Write {'a whole number' if number else 'a name'}."
            )
    return event


def from_json(data: Any) -> Event:
    """An event from plain data. Raises UsageError where it is none."""
    event: Event = _build(EVENTS, "an event", data)
    if isinstance(event, Schedule):
        written: Any = event.chose
        if not isinstance(written, list):
            raise UsageError(f"A Schedule chose {event.chose!r}. Write the list of what it chose.")
        event = event._replace(chose=tuple(_build(CHOICES, "a choice", c) for c in written))
    if isinstance(event, Complete):
        event = event._replace(accepted=_accepted(event.accepted or {}))
    return event


def _accepted(written: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(written, dict) or not all(type(n) is int for n in written.values()):
        raise UsageError(
            f"A Complete accepted {written!r}. Write an object with a whole number of drafts for "
            "each request."
        )
    return tuple(written.items())
