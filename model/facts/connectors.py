"""What happened in a run of a connector, as data. Checks read facts; sentences come last."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kvproof.model.state import Death

ANOTHER_RANK = "another rank's "
"""What a slot holds begins so if another rank of tensor parallelism computed it for its part of the
layer."""


class Slot(NamedTuple):
    """A place in a KV cache: the KV of one token (attention), or one state (Mamba, offset 0)."""

    layer: str
    group: int
    block: int
    offset: int


class Matched(NamedTuple):
    """The scheduler asked how many tokens the connector has beyond `computed_tokens`. `tokens` is
    the answer, None for "ask again later". `later` says that the load ends in a later step.
    `request_tokens` are all tokens of the request (`get_num_new_matched_tokens`). `computes_all`:
    it must compute its whole prompt."""

    request: str
    computed_tokens: int
    tokens: int | None
    later: bool
    request_tokens: int
    computes_all: bool = False


class Promised(NamedTuple):
    """The request got blocks for tokens that the connector loads (`update_state_after_alloc`): from
    token `start` on, `tokens` of them. `computes_all`: it must compute its whole prompt."""

    request: str
    start: int
    tokens: int
    later: bool
    computes_all: bool = False


class Loaded(NamedTuple):
    """What a slot of a promised token holds when the load should be over. `found` is the prefix in
    it, None where it holds nothing that a step has computed."""

    request: str
    slot: Slot
    token: int
    expected: str
    found: str | None


class Wrote(NamedTuple):
    """The connector changed a slot that no load of its may change. `holder` is the request that has
    the block, empty if none has; `held` is what the slot held."""

    slot: Slot
    holder: str
    held: str | None
    found: str | None


class SlotRead(NamedTuple):
    """A step of a request read a slot. It needs `expected`."""

    request: str
    slot: Slot
    token: int
    expected: str
    found: str | None


class LoadEnded(NamedTuple):
    """The worker reported that the load of a request has ended; `failed` that it failed."""

    request: str
    failed: bool = False


class BlocksKept(NamedTuple):
    """The connector keeps the blocks of a request that has ended (`request_finished` is True)."""

    request: str


class SendEnded(NamedTuple):
    """The worker reported that the blocks of an ended request may be freed."""

    request: str


class LoadFailed(NamedTuple):
    """The worker reported blocks whose load failed."""

    blocks: tuple[int, ...]
    loading: tuple[int, ...]


class MayFail(NamedTuple):
    """What is behind the connector may have lost what it had, and may fail, from now on."""


class StoreReset(NamedTuple):
    """The connector's cache is reset: loads that are under way may fail."""


class NotifiedTooEarly(NamedTuple):
    """A tier of the connector was notified that a request has ended, and then something is
    submitted for this request by `call`."""

    request: str
    tier: str
    call: str


class NeverNotified(NamedTuple):
    """The engine is idle, and a tier of the connector that was notified of a request was not
    notified of its end."""

    request: str
    tier: str


class NeverBegun(NamedTuple):
    """A tier of the connector is notified of the end of a request, of which it was never
    notified."""

    request: str
    tier: str


class LeftOpen(NamedTuple):
    """Both sides of a connector were shut down, and a number of things of this kind (`what`) that
    it has opened is still open."""

    what: str
    number: int


class EngineKnown(NamedTuple):
    """A connector still has an engine in a container (`where`), by its name, that had ended
    `gone_s` seconds before another one took its place, and a load from that one has ended."""

    where: str
    gone_s: int


class CopiedTooEarly(NamedTuple):
    """A copy out of a block was submitted that does not wait for the model's step that computes
    it: it may read what was there before."""

    layer: str
    block: int


class CopiedAgain(NamedTuple):
    """A copy out of the KV caches was submitted while one of the same bytes is under way.
    `address` is where they are, `size` their number."""

    address: int
    size: int


class Died(NamedTuple):
    """A call raised an exception. `in_connector` says whether the innermost frame is in a file of
    the connector."""

    death: Death
    in_connector: bool


class ResetRaised(NamedTuple):
    """A reset of the connector's cache raised an exception. The engine goes on."""

    death: Death


class Waits(NamedTuple):
    """A request did not end, although nothing more arrives and the engine was stepped
    `steps` times without any change, or with changes that are `endless`. To go on it needs `needs`
    blocks more, and `copies` for copies of states, if what it has computed ends inside a block of
    states; `free` blocks are free, and `others` are the other requests that have blocks. One
    without blocks is `behind` a request that lacks blocks for copies alone."""

    request: str
    status: str
    steps: int
    needs: int = 0
    copies: int = 0
    free: int = 0
    others: int = 0
    behind: str = ""
    endless: bool = False

    @property
    def lacks_copies(self) -> bool:
        """Whether blocks for copies of states are all that the request lacks, beside others."""
        return bool(self.others) and self.needs <= self.free < self.needs + self.copies


class Unfreed(NamedTuple):
    """A request has ended with this status, and has blocks, although nothing more arrives and the
    engine was stepped `steps` times: nobody reports the end of its transfer."""

    request: str
    status: str
    steps: int


class Owed(NamedTuple):
    """The engine says that it has nothing to do, or has no request and goes round without end, and
    blocks are not free. `holders` are the requests that the scheduler still has; `steps` is how
    often it went round."""

    blocks: int
    holders: tuple[str, ...]
    steps: int = 0


class Missed(NamedTuple):
    """A prompt that was computed before, and that the connector should have, was not offered:
    `tokens` of `whole` tokens were."""

    request: str
    tokens: int
    whole: int


class Remembered(NamedTuple):
    """The connector offers tokens after a reset of its cache, and nothing was computed since."""

    request: str
    tokens: int


class NotComputed(NamedTuple):
    """A request that must compute its whole prompt begins after `tokens` tokens of a cache."""

    request: str
    tokens: int


class Announced(NamedTuple):
    """The connector reports blocks of a group as stored (`BlockStored`), with their tokens:
    `hashes` hashes, `tokens` tokens, blocks of `block_tokens` tokens. `group_tokens` are the tokens
    of a block of the group, None where the event names no group. The engine has `groups` groups."""

    hashes: int
    tokens: int
    block_tokens: int
    group_tokens: int | None
    groups: int = 1


class EventMisread(NamedTuple):
    """The connector reports a block as stored with the tokens `carried`, under the hash of a
    prefix that ends otherwise."""

    carried: str
    prefix: str


class CacheStatistics(NamedTuple):
    """What the statistics of a prefix cache (`where`: the engine's or the connector's) say at the
    end: look-ups of `looked_up` requests that had not run before. `arrived` requests have
    arrived, and `failed` times the load of one failed: it may be looked up again."""

    where: str
    looked_up: int
    arrived: int
    failed: int = 0


class PromptReported(NamedTuple):
    """With its first output, the engine reports of a prompt of `tokens` tokens how many came from
    its own cache (`local`), how many the connector had (`external`), and how many were `computed`.
    It was `admitted` with these numbers of local and external tokens, more than once where it was
    preempted."""

    request: str
    tokens: int
    local: int
    external: int
    computed: int
    admitted: tuple[tuple[int, int], ...]


class StateSaved(NamedTuple):
    """What the file of an ended request has as the hidden states of a token of its prompt. `found`
    is the prefix, None for what no step computed; `there` says whether the file goes so far."""

    request: str
    token: int
    expected: str
    found: str | None
    there: bool


class ItemMissing(NamedTuple):
    """A step computes a token of an image, and the worker does not have what the encoder made of
    it."""

    request: str
    item: str
    token: int


class ItemWrong(NamedTuple):
    """A step computes a token of an image, and what the worker has for it is not what the encoder
    made of it."""

    request: str
    item: str
    token: int


class ItemUnkept(NamedTuple):
    """A step computes a token of an image, and the encoder cache counts its request as one that
    does not need it any more."""

    request: str
    item: str


class ItemsUnencoded(NamedTuple):
    """A request has ended at an engine that only encodes images, and these were not encoded."""

    request: str
    items: tuple[str, ...]


class ItemDropped(NamedTuple):
    """The scheduler has the worker drop what the encoder made of an image, and the encoder cache
    counts it as there."""

    item: str


class ItemsHeld(NamedTuple):
    """The worker has outputs of the encoder for more tokens than there is room for."""

    tokens: int
    room: int


class ItemsOwed(NamedTuple):
    """An idle engine has counted `taken` tokens of its encoder cache as taken, `used` of them by
    requests; the worker has outputs for `there` tokens."""

    taken: int
    there: int
    used: int


Fact: TypeAlias = (
    Matched
    | Promised
    | Loaded
    | Wrote
    | SlotRead
    | LoadEnded
    | BlocksKept
    | SendEnded
    | LoadFailed
    | MayFail
    | StoreReset
    | NotifiedTooEarly
    | NeverNotified
    | NeverBegun
    | LeftOpen
    | EngineKnown
    | CopiedTooEarly
    | CopiedAgain
    | Died
    | ResetRaised
    | Waits
    | Unfreed
    | Owed
    | Missed
    | Remembered
    | NotComputed
    | Announced
    | EventMisread
    | CacheStatistics
    | PromptReported
    | StateSaved
    | ItemMissing
    | ItemWrong
    | ItemUnkept
    | ItemDropped
    | ItemsUnencoded
    | ItemsHeld
    | ItemsOwed
)

LOOKED_AT: dict[type, str] = {
    Loaded: "promised tokens",
    Wrote: "writes",
    SlotRead: "reads",
    NotComputed: "answers for whole prompts",
    Died: "steps",
    Missed: "prompts that came again",
    Remembered: "answers after a reset",
    ResetRaised: "resets",
    CopiedTooEarly: "copies of blocks",
    CopiedAgain: "copies of whole blocks",
    NeverBegun: "notified ends of requests",
    NotifiedTooEarly: "notified ends of requests",
    NeverNotified: "notified ends of requests",
    LeftOpen: "files and clients that were opened",
    EngineKnown: "engines that were gone for long",
    EventMisread: "hashes of events whose prefix is known",
    ItemMissing: "images read",
    ItemUnkept: "images read",
    ItemWrong: "images loaded",
    ItemDropped: "images dropped",
    ItemsUnencoded: "requests that were encoded",
    Waits: "loads",
    Unfreed: "kept requests",
    Owed: "kept requests",
}
"""The facts that exist only where something is wrong, with what a run looks at to find them: it
counts this by its name."""

COUNTED: dict[type, str] = {
    Matched: "answers",
    Promised: "loads",
    LoadEnded: "reports",
    SendEnded: "reports",
    LoadFailed: "failures",
    BlocksKept: "kept requests",
    Announced: "events with tokens",
    CacheStatistics: "statistics",
    PromptReported: "reported prompts",
    StateSaved: "saved hidden states",
    ItemsHeld: "looks at the encoder cache",
    ItemsOwed: "looks at the encoder cache",
}
"""The facts that are right or wrong, with the name by which a run counts them."""


@dataclass
class Past:
    """What happened before a fact: the loads and the sends that are under way, and whether what is
    behind the connector may fail. `reset` are the loads during which its cache was reset."""

    loads: dict[str, Promised] = field(default_factory=dict)
    sends: set[str] = field(default_factory=set)
    may_fail: bool = False
    reset: set[str] = field(default_factory=set)

    def add(self, fact: Fact) -> None:
        """Take a fact into the past."""
        if isinstance(fact, Promised):
            self.loads[fact.request] = fact
            self.reset.discard(fact.request)
        elif isinstance(fact, LoadEnded):
            self.loads.pop(fact.request, None)
            self.reset.discard(fact.request)
        elif isinstance(fact, BlocksKept):
            self.sends.add(fact.request)
        elif isinstance(fact, SendEnded):
            self.sends.discard(fact.request)
        elif isinstance(fact, MayFail):
            self.may_fail = True
        elif isinstance(fact, StoreReset):
            self.reset.update(name for name, load in self.loads.items() if load.later)
