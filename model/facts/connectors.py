"""Facts of a run with a connector: what happened, as plain data. Checks judge facts; only `wording`
makes sentences of them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from kvproof.model.state import Death

ANOTHER_RANK = "another rank's "
"""The beginning of a slot's content if another rank of tensor parallelism computed it for its own
part of the layer."""


class Slot(NamedTuple):
    """A place in a KV cache: the KV of one token (attention), or one state (Mamba, offset 0)."""

    layer: str
    group: int
    block: int
    offset: int


class Matched(NamedTuple):
    """The scheduler asked how many tokens the connector has beyond `computed_tokens`. `tokens` is
    the answer, None for "ask again later". `later` says that the load ends in a later step.
    `request_tokens` are all tokens of the request (`get_num_new_matched_tokens`). `computes_all`
    says that the request must compute its whole prompt."""

    request: str
    computed_tokens: int
    tokens: int | None
    later: bool
    request_tokens: int
    computes_all: bool = False


class Promised(NamedTuple):
    """The request got blocks for `tokens` tokens, from token `start` on, that the connector loads
    (`update_state_after_alloc`). `later` says that the load ends in a later step. `computes_all`
    says that the request must compute its whole prompt. Another load in progress brings
    `under_way` of these tokens too, and an earlier one has brought `before` of them."""

    request: str
    start: int
    tokens: int
    later: bool
    computes_all: bool = False
    under_way: int = 0
    before: int = 0


class LoadedSlot(NamedTuple):
    """The slot of a promised token when its load is over. `expected` is the prefix that it should
    hold, and `found` the prefix that it holds, None where no step has computed its content."""

    slot: Slot
    token: int
    expected: str
    found: str | None


class LoadOver(NamedTuple):
    """The load of a request is over on a worker, in one layer or in all, with the slots that it had
    to fill there."""

    request: str
    slots: tuple[LoadedSlot, ...]

    @property
    def times(self) -> int:
        """The number of slots."""
        return len(self.slots)


class Holder(NamedTuple):
    """A request that has a block. In its block table, the slot in question belongs to `token` and
    should hold the prefix `expected`. `load` is its load in progress, None if it loads nothing."""

    request: str
    token: int
    expected: str
    load: Promised | None


class WrittenSlot(NamedTuple):
    """A slot that the connector changed, of attention or of a state. `held` is what it held before,
    and `found` what it holds now. `holders` are the requests that have its block."""

    slot: Slot
    attention: bool
    held: str | None
    found: str | None
    holders: tuple[Holder, ...]


class Written(NamedTuple):
    """The slots that the connector changed in the caches of a worker since the last look."""

    slots: tuple[WrittenSlot, ...]

    @property
    def times(self) -> int:
        """The number of slots."""
        return len(self.slots)


class WrongSlot(NamedTuple):
    """A slot that a step of a request read: it must hold the prefix `expected`, and holds
    `found`."""

    request: str
    slot: Slot
    token: int
    expected: str
    found: str | None


class SlotsRead(NamedTuple):
    """The slots of a layer that a step read: the number of those that held what they must hold
    (`right`), and the others. One fact for each slot would take too long."""

    right: int
    wrong: tuple[WrongSlot, ...]

    @property
    def times(self) -> int:
        """The number of slots."""
        return self.right + len(self.wrong)


class LoadEnded(NamedTuple):
    """The worker reported that the load of a request has ended. `failed` says whether it failed."""

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
    """From now on, the memory behind the connector may have lost its content, and its calls may
    fail."""


class StoreReset(NamedTuple):
    """The connector's cache was reset. Loads in progress may fail."""


class TierNotified(NamedTuple):
    """A tier of the connector is notified that a request has ended. `begun` says whether it was
    notified of the start of this request before, and `of_starts` whether of the start of any
    request."""

    request: str
    tier: str
    begun: bool
    of_starts: bool


class TierCalled(NamedTuple):
    """`call` submits something to a tier of the connector for a request. `ended` says whether the
    tier was notified before that the request had ended."""

    request: str
    tier: str
    call: str
    ended: bool


class TierIdle(NamedTuple):
    """The engine is idle. A tier of the connector was notified of the end of so many requests
    (`ended`), and of the start of the requests `left`, but not of their end."""

    tier: str
    ended: int
    left: tuple[str, ...]


class Closed(NamedTuple):
    """Both sides of a connector were shut down. They had opened a number of resources of the kind
    `what`, of which `left` are still open."""

    what: str
    opened: int
    left: int


class EngineGone(NamedTuple):
    """An engine had ended `gone_s` seconds before another one took its place. Until the end of the
    run, the other side's connector keeps its name in the containers `where`. By its settings it
    keeps what it knows for `kept_s` seconds. `met` says whether a load from the new engine has
    ended."""

    gone_s: int
    kept_s: int
    met: bool
    where: tuple[str, ...]


class Remembered(NamedTuple):
    """A connector has the name of a request that the engine has no more, at the place `where`: in a
    container, or in an object of one. Workers took `steps` steps since the engine had the
    request. It was `sent` to load what another engine has, or for another to ask for."""

    where: str
    request: str
    steps: int
    sent: bool = False


class RequestsGone(NamedTuple):
    """The engine has `requests` no more, and has nothing to do. One side of its connector has what
    is `remembered` of them. What goes on after a request, such as a copy, is over after `lasts`
    steps, if the threads of the connector do not `stand`."""

    requests: int
    remembered: tuple[Remembered, ...]
    lasts: int
    stand: bool = False


class CopiedBlock(NamedTuple):
    """A block that a copy reads."""

    layer: str
    block: int


class CopiedBytes(NamedTuple):
    """Bytes that a copy reads: the address of the first one, and their number. `reset` says that
    the connector's cache was reset before."""

    address: int
    size: int
    reset: bool = False


class Copied(NamedTuple):
    """The connector submitted a `number` of copies out of the KV caches. The copies of the blocks
    `early` do not wait for the model's step that computes the block, and may read the old content.
    The bytes `again` are what another copy in progress reads too. With `by_block`, each block has a
    key of its own, and with `parts`, also the beginnings of a block have keys."""

    number: int
    early: tuple[CopiedBlock, ...] = ()
    again: tuple[CopiedBytes, ...] = ()
    by_block: bool = True
    parts: bool = False

    @property
    def times(self) -> int:
        """The number of copies."""
        return self.number


class Called(NamedTuple):
    """The engine was called: a step, its output, an arrival, an abort, a reset, a start or an end.
    With a `death`, vLLM raised an exception, and the engine is dead. `in_connector` says whether
    the innermost frame is in a file of the connector."""

    death: Death | None = None
    in_connector: bool = False


class ResetAnswered(NamedTuple):
    """The engine was asked to reset its prefix cache, and with `connector` that of the connector
    too, and answered whether it has `done` so. Before, it had so many `requests`, and `taken` of
    its blocks were not free; `idle` says that it had nothing to do by its own account. The
    connector may answer that it `refused`, say that it `cannot` reset its cache, or raise another
    exception (`death`); the engine goes on."""

    done: bool
    connector: bool
    idle: bool
    requests: int
    taken: int
    cannot: bool = False
    death: Death | None = None
    refused: bool = False


class Waits(NamedTuple):
    """A request did not end, although no more requests arrive. The engine took `steps` steps
    without any change or, if `endless`, with changes that never lead to an end. To continue, the
    request needs `needs` more blocks, and `copies` blocks for copies of states if its computed
    tokens end inside a block of states. `free` blocks are free, and `others` are the other requests
    that have blocks. A request without blocks is `behind` a request that lacks blocks for copies
    alone."""

    request: str
    status: str
    steps: int
    needs: int = 0
    copies: int = 0
    free: int = 0
    others: tuple[str, ...] = ()
    behind: str = ""
    endless: bool = False

    @property
    def lacks_copies(self) -> bool:
        """Whether the request, beside other requests with blocks, lacks only blocks for copies of
        states."""
        return bool(self.others) and self.needs <= self.free < self.needs + self.copies


class Unfreed(NamedTuple):
    """A request has ended with this status and still has blocks, because no report says that its
    transfer has ended. No more requests arrive, and the engine took `steps` steps without any
    change."""

    request: str
    status: str
    steps: int


class RequestsEnded(NamedTuple):
    """No more requests arrive, and so many requests of an engine have ended and left the
    scheduler."""

    number: int


class Owed(NamedTuple):
    """An engine has no unfinished work, and so many of its `blocks` are not free. The engine says
    that it has nothing to do, or it has no request and steps without end. `holders` are the
    requests that the scheduler still has, and `steps` is the number of steps so far."""

    blocks: int
    holders: tuple[str, ...]
    steps: int = 0


Since: TypeAlias = Literal[
    "asked later",
    "computes all",
    "may not keep",
    "no prefix cache",
    "failed",
    "states",
    "window",
    "drafter",
    "answer",
    "runs",
    "aborted",
    "not idle",
    "freed",
    "reset",
    "restart",
]
"""A reason for which fewer tokens may be offered than were computed before: what is true of the
look-up and of the engine, or has happened since the tokens were computed."""


class Alike(NamedTuple):
    """The first `tokens` tokens of a prompt, in blocks that are whole in each cache group, are
    those of an earlier request, which computed them. `since` are the reasons for which fewer may be
    offered."""

    tokens: int
    since: tuple[Since, ...]


class LookedUp(NamedTuple):
    """The scheduler asked the connector about a prompt that begins as earlier ones. `tokens` of it
    are offered, with those that the engine has. `alike` has, for each set of reasons, the most
    tokens that an earlier request computed."""

    request: str
    tokens: int
    alike: tuple[Alike, ...]


class AskedAfterReset(NamedTuple):
    """The scheduler asked the connector about a prompt after a reset of the connector's cache, and
    it offers `tokens`, up to token `end`. Steps computed the first `fresh` tokens of the prompt
    since. The engine was `idle` at the reset, the connector said that it was `done`, and `steps`
    says whether a step computed anything since."""

    request: str
    tokens: int
    end: int
    fresh: int
    idle: bool
    done: bool
    steps: bool


class Begun(NamedTuple):
    """A request begins with `tokens` tokens that a cache has. `computes_all` says that it must
    compute its whole prompt."""

    request: str
    tokens: int
    computes_all: bool


class TierLoads(NamedTuple):
    """A tier of a store is asked for the values of so many `keys`, and was asked for `again` of
    them before. It is `unwanted`: the request wants nothing of lower tiers."""

    keys: int
    again: int
    unwanted: bool = False

    @property
    def times(self) -> int:
        """The number of keys."""
        return self.keys


class Stored(NamedTuple):
    """Clients of a store sent the values of so many `keys` to it. The store had `again` of them."""

    keys: int
    again: int

    @property
    def times(self) -> int:
        """The number of keys."""
        return self.keys


class Announced(NamedTuple):
    """The connector reports blocks of a group as stored (`BlockStored`). The event has `hashes`
    hashes and `tokens` tokens, perhaps none, and says that a block has `block_tokens` tokens.
    `group_tokens` is the real number of tokens of a block of the named group, None where the event
    names no group. The engine has `groups` groups. Of so many hashes an earlier event said the same
    (`again`), and none since that the block was removed; with `soon`, so short before that both
    copies were in progress at the same time. The connector may consist of `several`."""

    hashes: int
    tokens: int
    block_tokens: int
    group_tokens: int | None
    groups: int = 1
    again: int = 0
    soon: bool = False
    several: bool = False


class EventTokens(NamedTuple):
    """The connector reports a block as stored under the hash of `prefix`, with the tokens
    `carried`. They should be the last tokens of that prefix."""

    carried: str
    prefix: str


class Unpublished(NamedTuple):
    """An engine has nothing to do, and so many events of its connector are queued: no subscriber
    got them."""

    events: int


class CacheStatistics(NamedTuple):
    """The statistics of a prefix cache at the end of a run. `where` says whose cache it is: the
    engine's or the connector's. It counted look-ups of `looked_up` requests that had not run
    before, although `arrived` requests arrived. Loads failed `failed` times, and a request whose
    load failed may be looked up again."""

    where: str
    looked_up: int
    arrived: int
    failed: int = 0


class TokensLookedUp(NamedTuple):
    """The tokens that the statistics of a prefix cache count in a run, and those that the requests
    had which were admitted. `where` is as in `CacheStatistics`. `counted` and `admitted` are pairs:
    the tokens that were looked up, and those of them that the cache had. A hit may be `unlike` what
    the connector was told of it, if hits end inside a block or a cache group has states."""

    where: str
    counted: tuple[int, int]
    admitted: tuple[int, int]
    unlike: bool = False


class PromptReported(NamedTuple):
    """What the engine reports of a prompt of `tokens` tokens with the first output of its request:
    how many tokens came from its own cache (`local`), how many from the connector (`external`), and
    how many were `computed`. `admitted` has the pair of local and external tokens of each
    admission; there are several if the request was preempted. Of the computed tokens, `cached` are
    in the engine's prefix cache now, as the engine says; None where it does not say so. Whole
    blocks have the first `whole` tokens of the prompt; 0 without a prefix cache. The engine has
    `other` groups than one of full attention, or a drafter, or hits that end inside a block."""

    request: str
    tokens: int
    local: int
    external: int
    computed: int
    admitted: tuple[tuple[int, int], ...]
    cached: int | None = None
    whole: int = 0
    other: bool = False


class StateSaved(NamedTuple):
    """The hidden state that the file of an ended request has for one token of its prompt.
    `expected` is the prefix that it should belong to. `found` is the prefix that it belongs to,
    None if no step computed it. `there` says whether the file has this token at all."""

    request: str
    token: int
    expected: str
    found: str | None
    there: bool


class ItemEncoded(NamedTuple):
    """A step encodes an image for a request. `again` says that an earlier step has encoded it, and
    `held` that the worker still has its output."""

    request: str
    item: str
    again: bool
    held: bool


class ItemRead(NamedTuple):
    """A step computes a token of an image. `there` says whether the worker has an output of the
    encoder for the image, and `right` whether it is what the encoder made of this image. `kept`
    says whether the encoder cache still counts the image as needed by the request. With `cut`, the
    step ends inside the image, and `may_cut` says whether the engine is set so that it may."""

    request: str
    item: str
    token: int
    there: bool
    right: bool
    kept: bool
    cut: bool = False
    may_cut: bool = True


class ItemReadAhead(NamedTuple):
    """A drafter reads a token after those of a step, with which an image of the request begins.
    `there` says whether the worker has an output of the encoder for the image."""

    request: str
    item: str
    token: int
    there: bool


class ItemDropped(NamedTuple):
    """The scheduler tells the worker to drop the encoder's output for an image. `counted` says
    whether the encoder cache still counts it as present."""

    item: str
    counted: bool


class ItemsEncoded(NamedTuple):
    """A request with `items` images has ended well on an engine that only encodes images. The
    images `lacking` were not encoded."""

    request: str
    items: int
    lacking: tuple[str, ...]


class ItemsHeld(NamedTuple):
    """The worker has encoder outputs for more tokens than the encoder cache has room for."""

    tokens: int
    room: int


class ItemsOwed(NamedTuple):
    """The encoder cache of an idle engine counts `taken` tokens as taken, `used` of them by
    requests, and the worker has outputs for `there` tokens."""

    taken: int
    there: int
    used: int


Fact: TypeAlias = (
    Matched
    | Promised
    | LoadOver
    | Written
    | SlotsRead
    | LoadEnded
    | BlocksKept
    | SendEnded
    | LoadFailed
    | MayFail
    | StoreReset
    | TierNotified
    | TierCalled
    | TierIdle
    | Closed
    | EngineGone
    | RequestsGone
    | Copied
    | Called
    | ResetAnswered
    | Waits
    | Unfreed
    | RequestsEnded
    | Owed
    | LookedUp
    | AskedAfterReset
    | Begun
    | Stored
    | TierLoads
    | Announced
    | EventTokens
    | Unpublished
    | CacheStatistics
    | TokensLookedUp
    | PromptReported
    | StateSaved
    | ItemEncoded
    | ItemRead
    | ItemReadAhead
    | ItemDropped
    | ItemsEncoded
    | ItemsHeld
    | ItemsOwed
)

BEHAVIOUR = (Matched, Promised, LoadEnded, BlocksKept, SendEnded, Owed, Waits, Unfreed)
"""The facts by which two vLLMs behave the same or not, beside the answers and the state of an
engine: what the connector answered, and what it still owes."""

COUNTED: dict[type, str] = {
    Matched: "answers",
    Promised: "loads",
    LoadOver: "promised tokens",
    Written: "writes",
    SlotsRead: "reads",
    LoadEnded: "reports",
    SendEnded: "reports",
    LoadFailed: "failures",
    BlocksKept: "kept requests",
    LookedUp: "prompts that came again",
    AskedAfterReset: "answers after a reset",
    Begun: "requests that began",
    Stored: "values that a store was sent",
    TierLoads: "values that a tier was asked for",
    Announced: "events of stored blocks",
    EventTokens: "hashes of events whose prefix is known",
    Unpublished: "idle engines",
    CacheStatistics: "statistics",
    TokensLookedUp: "statistics",
    PromptReported: "reported prompts",
    StateSaved: "saved hidden states",
    Called: "calls",
    ResetAnswered: "answers to resets",
    Waits: "requests that did not end",
    Unfreed: "requests that did not end",
    RequestsEnded: "idle engines",
    Owed: "idle engines",
    TierNotified: "notified ends of requests",
    TierCalled: "calls of tiers",
    TierIdle: "tiers of idle engines",
    Closed: "kinds of files and clients that were opened",
    EngineGone: "engines that are gone",
    RequestsGone: "sides of connectors of idle engines",
    Copied: "copies of blocks",
    ItemEncoded: "images encoded",
    ItemRead: "images read",
    ItemReadAhead: "images that a drafter reads ahead of a step",
    ItemDropped: "images dropped",
    ItemsEncoded: "requests that were encoded",
    ItemsHeld: "looks at the encoder cache",
    ItemsOwed: "looks at the encoder cache",
}
"""The facts that a run counts, each with the name under which it does. A fact about several things
has their number (`times`)."""


def counted(facts: Iterable[Fact]) -> Counter[str]:
    """How many things facts are about, by their names in `COUNTED`."""
    found: Counter[str] = Counter()
    for fact in facts:
        if (name := COUNTED.get(type(fact))) is not None:
            found[name] += getattr(fact, "times", 1)
    return found


@dataclass
class Past:
    """The facts before a fact, as far as checks need them: the loads and sends in progress, and
    whether the memory behind the connector may fail. `reset` has the loads during which the
    connector's cache was reset."""

    loads: dict[str, Promised] = field(default_factory=dict)
    sends: set[str] = field(default_factory=set)
    may_fail: bool = False
    reset: set[str] = field(default_factory=set)

    def add(self, fact: Fact) -> None:
        """Add a fact to the past."""
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
