"""Facts of a run of an engine's loop: what happened when a plan was played, as plain data. Nothing
here imports vLLM."""

from itertools import takewhile
from typing import NamedTuple

from kvproof.model.facts.connectors import Fact
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.state import Death

OWN = frozenset({"length", "stop", "repetition"})
"""The reasons of the end of an answer: it has its largest length, its model ended it, or it repeats
itself."""


class ClientRequest(NamedTuple):
    """A request that the engine took, and what its client received: the number of `tokens`, and
    the reason of each `end`. `gone` says that the client did not wait for the end. For a request
    with a grammar, `masks` has one entry for each token after the reasoning: how many of the tokens
    before it the mask took into account, None where no mask was used. Of a session, the engine took
    so many `parts` of the prompt, and each has an answer with an end; `answer` is the number of
    tokens of all answers, up to where the model ends them. A request that is none has no parts.
    `steps_after` is the number of steps that computed it after the engine took the message that its
    client is gone. So many messages with it, or with a part of it, were `lost`: the engine has read
    them, and its loop did not get them. If the engine has forgotten its image, `untold` are the
    fronts that still believe it to have the image."""

    name: str
    answer: int
    gone: bool
    tokens: int
    ends: tuple[str, ...]
    masks: tuple[int | None, ...] = ()
    parts: int = 0
    steps_after: int = 0
    lost: int = 0
    untold: tuple[str, ...] | None = None

    @property
    def turns(self) -> int:
        """The number of answers."""
        return max(self.parts, 1)

    @property
    def most_ends(self) -> int:
        """The number of ends that a client takes for those of its request: one of each answer. An
        end for another reason than its own is the last one; a session may have it between two
        answers too."""
        answers = [*takewhile(OWN.__contains__, self.ends[: self.turns])]
        cut = not OWN.issuperset(self.ends[len(answers) : len(answers) + 1])
        return len(answers) + (cut and (len(answers) < self.turns or self.parts > 0))

    @property
    def is_answered(self) -> bool:
        """Whether the client waits for nothing more: it is gone, or each answer has an end, or the
        engine ended the request before it was answered."""
        cut = not OWN.issuperset(self.ends)
        return self.gone or cut or len(self.ends) >= self.turns

    @property
    def is_whole(self) -> bool:
        """Whether each answer has come to its end, and nothing came after."""
        return len(self.ends) == self.turns and OWN.issuperset(self.ends)


class Did(NamedTuple):
    """The number of tokens that clients received (`answered`) and that steps `computed`, the number
    of `requests` that received tokens, and how many were `preempted`, each time."""

    answered: int
    computed: int
    requests: int
    preempted: int = 0


class Exported(NamedTuple):
    """The same numbers as the exported metrics say them. `now` has three values: running requests,
    waiting requests, and the share of blocks that is not free."""

    answered: int
    computed: int
    now: tuple[float, ...] = ()


class SizeKnown(NamedTuple):
    """A size of an engine after its start: the engine's value, and the value that its front
    assumes."""

    what: str
    of_engine: int
    by_front: int


class Counts(NamedTuple):
    """The number of transfers that have ended, and of requests that were looked up in the prefix
    cache."""

    transfers: int = 0
    lookups: int = 0

    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        return Counts(self.transfers + other.transfers, self.lookups + other.lookups)


class LoopWait(NamedTuple):
    """A moment at which the loop says that it has nothing to do: it waits for a message for the
    `number`-th time, or it has ended (0). The fields say what is left at this moment: the `waiting`
    requests without an end; the `steps` whose output nobody took; the `ended` requests of which the
    workers still keep data; the `transfers` that the workers have begun and not reported; the
    `unfreed` ones without a transfer, whose blocks a prefill node keeps because it was not
    notified; and the blocks that are not free (`held`), among them those of the sessions that wait
    for their user (`sessions`). `paused` says that a client wants it to
    wait. `unpublished` is the number of KV events that no subscriber got yet. `noted` has the
    counts in the engine's statistics, and `received` the counts that each front passed on to its
    user."""

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
    unpublished: int = 0
    sessions: tuple[str, ...] = ()


class StepSize(NamedTuple):
    """The number of tokens that a step computes, of its requests, and of the `slots` that each of
    these needs for drafts."""

    tokens: int
    requests: int
    slots: int = 0


class Call(NamedTuple):
    """A call of a client to the engine: the `method`, the number of answers to it, and what the
    engine said of its failure, if it failed. It may be one that `empties` the prefix cache, and the
    engine may have taken it while it was still `pausing`."""

    method: str
    empties: bool = False
    answers: int = 0
    failure: str = ""
    pausing: bool = False


class Played(NamedTuple):
    """The result of playing a plan, with the sizes of its `steps`. `busy` says that the loop ran
    for so long without an answer that kvproof stopped it. `stopped` says that the engine was told
    to end, and `exited` that it did. `computed` has the number of tokens of each step that began
    while a pause was complete, and `asleep` of each step that began while memory was given up; a
    step may have none. `settled` has the number of steps in flight at each time that the engine
    took its device to be idle. `calls` has each call of a client. `known` has the sizes that the
    front of an engine with a fitted length assumes. `exported` has the metrics of what the engine
    `did`. `marks` has a number for all that could be seen at each moment (`live.marks`), and
    `counts` what was counted, by name. `store` has what the connector of an engine with a store
    did. A run is `cut` where the kit could not go on after a wrong answer of it."""

    plan: EnginePlan
    died: Death | None = None
    requests: tuple[ClientRequest, ...] = ()
    waits: tuple[LoopWait, ...] = ()
    busy: bool = False
    stopped: bool = False
    exited: bool = False
    steps: tuple[StepSize, ...] = ()
    computed: tuple[int, ...] = ()
    asleep: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    known: tuple[SizeKnown, ...] = ()
    did: Did | None = None
    exported: Exported | None = None
    marks: tuple[int, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    store: tuple[Fact, ...] = ()
    cut: bool = False
