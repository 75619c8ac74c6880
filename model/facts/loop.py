"""What came of a plan, as plain data: nothing of vLLM is in it."""

from typing import NamedTuple

from kvproof.model.plans.loop import LoopPlan
from kvproof.model.state import Death


class ClientRequest(NamedTuple):
    """A request that the engine took, and what its client received: the number of `tokens`, and the
    reason of each `end`. `gone` says that its client did not wait for the end. With a grammar,
    `masks` has for each token after the reasoning how many of them before it the mask knew, None
    where there was no mask."""

    name: str
    answer: int
    gone: bool
    tokens: int
    ends: tuple[str, ...]
    masks: tuple[int | None, ...] = ()


class Did(NamedTuple):
    """How many tokens clients received and steps computed, and how many requests got tokens."""

    answered: int
    computed: int
    requests: int


class Exported(NamedTuple):
    """How many tokens were answered, and how many the steps had, as metrics say. `now` are the
    requests that run and wait and the part of the blocks that is not free."""

    answered: int
    computed: int
    now: tuple[float, ...] = ()


class SizeKnown(NamedTuple):
    """A size that an engine has after its start, and what its front takes it for."""

    what: str
    of_engine: int
    by_front: int


class Counts(NamedTuple):
    """Transfers that have ended, and requests that were looked up in the prefix cache."""

    transfers: int = 0
    lookups: int = 0

    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        return Counts(self.transfers + other.transfers, self.lookups + other.lookups)


class LoopWait(NamedTuple):
    """The loop waits for a message (the `number`-th time), or it has ended (0): it says that there
    is nothing to do. What is left then: the `waiting` requests without an end; the `steps` whose
    output nobody took; the `ended` requests of which the workers still keep data; the `transfers`
    that the workers have begun and not reported; the `unfreed` ones without a transfer, whose
    blocks a prefill node keeps because it was not notified; and the blocks that are not free
    (`held`). `paused` says that a client wants it to wait. What the engine
    has `noted` in its statistics, the user of each front has `received` as far as it says."""

    number: int
    paused: bool
    waiting: tuple[str, ...] = ()
    steps: int = 0
    ended: tuple[str, ...] = ()
    transfers: tuple[str, ...] = ()
    unfreed: tuple[str, ...] = ()
    held: int = 0
    noted: Counts = Counts()
    received: tuple[tuple[str, Counts], ...] = ()


class Played(NamedTuple):
    """A plan that was played. `busy` says that the loop went on for so long without an answer that
    it was stopped; `stopped` that the engine was to end, and `exited` that it did. `computed` are
    the numbers of tokens of steps that began while a pause was complete, `asleep` of those that
    began while memory was given up; `calls` is the number of answers that each call of a client
    received, by name, and `known` what the front of a fitted engine knows of it. `exported` is what
    metrics say of what it `did`."""

    plan: LoopPlan
    died: Death | None = None
    requests: tuple[ClientRequest, ...] = ()
    waits: tuple[LoopWait, ...] = ()
    busy: bool = False
    stopped: bool = False
    exited: bool = False
    computed: tuple[int, ...] = ()
    asleep: tuple[int, ...] = ()
    unsettled: int = 0
    calls: tuple[tuple[str, int], ...] = ()
    known: tuple[SizeKnown, ...] = ()
    did: Did | None = None
    exported: Exported | None = None
