"""The lines of a record file as declared types.

A record has the last events of one engine that the sanitizer watches. The first line is a
`RecordHeader`. Then each event has a `RecordedEvent`, in the order in which they happened; a
`FindingLine` follows the event after which a check did not hold. Then comes an `EngineState`, what
the engine had when the file was written. The last line is an `EndLine`.

No token is in a record: a prompt is its length.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, field

from kvproof.model.config.engine import Policy
from kvproof.model.config.group import Kind, Mode
from kvproof.model.events import Count, Lists
from kvproof.model.hit_rows import HitRow
from kvproof.model.traces.lines import EndLine, FindingLine, Line, Versions

SCHEMA: Final = 3
KIND: Final = "kvproof-record"

Size = Annotated[int, Meta(ge=1)]
"""A number of tokens, blocks or requests. A running engine has no other limits."""

Why: TypeAlias = Literal["violation", "request", "exit"]
"""Why a record was written: a check did not hold, a user asked for it, or the process ended after a
violation."""

Method: TypeAlias = Literal[
    "add_request",
    "schedule",
    "update_from_output",
    "finish_requests",
    "reset_prefix_cache",
    "evict_blocks",
]
"""The method of vLLM's scheduler (the last one: of its cache manager) whose call is an event."""


class Brief(Line, frozen=True, omit_defaults=True, kw_only=True):
    """A line, or a part of a line, that leaves out fields with their default value."""


class RecordedGroup(Brief, frozen=True, kw_only=True):
    """A cache group, as in a cluster."""

    kind: Kind
    block_size: Size
    window: Count = 0
    mode: Mode = "align"
    eagle: bool = False


class RecordedEngine(Brief, frozen=True, kw_only=True):
    """The options of an engine, as in a cluster, without the limits that a cluster has."""

    name: str
    groups: Annotated[tuple[RecordedGroup, ...], Meta(min_length=1)]
    num_blocks: Size
    chunk_tokens: Size
    prefix_caching: bool = True
    retention: Count | None = None
    policy: Policy = "fcfs"
    max_requests: Size
    steps_in_flight: Size = 1
    drafts: Count = 0
    match_unit: Count = 0
    hash_lookahead_tokens: Count = 0
    long_prefill_tokens: Count = 0


class Connector(Brief, frozen=True, kw_only=True):
    """The KV connector of an engine. `engine` is the id by which other engines know this one.
    `lease_s` is how long NIXL keeps blocks for the other side."""

    name: str
    engine: str = ""
    lease_s: float = 0.0


class RecordHeader(Line, frozen=True):
    """The first line. `from_start` says whether nothing had happened to the engine before the first
    event, and `dropped` counts the events that are too old to be in the file. `stopped` says why
    watching the engine stopped before its end, empty if it did not. The times of events are seconds
    of a `clock`; two records with the same clock (the id of a boot of a machine) can be
    compared."""

    schema: Literal[3]
    kind: Literal["kvproof-record"]
    why: Why
    written: str
    versions: Versions
    process: Count
    clock: str
    from_start: bool
    dropped: Count
    stopped: str
    engine: RecordedEngine
    connector: Connector | None


class Remote(Brief, frozen=True, kw_only=True):
    """The blocks that a request is to load from another engine: those of its `request`, the id of
    that `engine`, and how many tokens they hold (null where that is not known)."""

    engine: str
    request: str
    blocks: Lists
    tokens: Count | None = None


class Arrived(Brief, frozen=True, kw_only=True):
    """A request arrives. With `reads_cache` false, it asks for no hit. With `resumable`, it is a
    session. `sends` says that its blocks are for another engine."""

    request: str
    prompt_tokens: Count
    output_tokens_max: Count
    priority: int = 0
    reads_cache: bool = True
    resumable: bool = False
    sends: bool = False
    remote: Remote | None = None


class Admitted(Brief, frozen=True, kw_only=True):
    """A request gets its first blocks: `hit` tokens from the cache, and `external` tokens that the
    connector loads."""

    request: str
    hit: Count
    external: Count = 0


class Preempted(Brief, frozen=True, kw_only=True):
    """A running request loses its blocks, because `needy` does not fit (empty: in a reset)."""

    request: str
    needy: str = ""


class TableChange(Brief, frozen=True, kw_only=True):
    """The new block ids in the block table of a request in one group, from column `at` on."""

    request: str
    group: Count
    at: Count
    blocks: tuple[Count, ...]


class Load(Brief, frozen=True, kw_only=True):
    """The connector's worker is to fill these blocks; without any, it only notifies the other
    engine that no blocks are needed."""

    request: str
    blocks: Lists = ()


class Offer(Brief, frozen=True, kw_only=True):
    """A finished request keeps its blocks for another engine."""

    request: str
    blocks: Lists
    tokens: Count


class BlockSums(Brief, frozen=True, kw_only=True):
    """Checksums of the bytes of a request's blocks in one group, from column `at` of its table on;
    empty for the null block. The blocks hold `tokens` tokens of the request, counted from its
    first. They were `sent`, or loaded. Sums of different `form` cannot be compared."""

    request: str
    sent: bool
    group: Count
    at: Count
    tokens: Count
    form: str
    sums: tuple[str, ...]


class SharedTokens(Brief, frozen=True, kw_only=True):
    """What became of tokens that an admitted request shares with earlier requests. Each of them is
    in one row of this request."""

    request: str
    row: HitRow


class RecordedEvent(Brief, frozen=True, kw_only=True):
    """One event. `step` counts the events of the engine from 1, `at_s` is its time.

    `tokens` has the scheduled tokens of each request, in their order; in an event
    `update_from_output`, these are the tokens of the step whose output it processes. `outputs` has
    the number of new tokens of each request that did not get exactly one. `released` requests did
    not fit, and freed the blocks that they no longer need. `loaded` requests continue after a load,
    and `received`, `failed` and `sent` are the reports of the connector's worker. `ended` has a
    reason for each request. `done` says whether a reset was carried out, and `running` whether it
    preempts running requests. `evicted` are block ids. `block_sums` were known after the event.
    `shared` says what became of tokens that admitted requests share with earlier ones. `raised` is
    the exception that ended the event.
    """

    step: Size
    at_s: float
    event: Method
    arrived: Arrived | None = None
    tokens: dict[str, Count] = field(default_factory=dict)
    admitted: tuple[Admitted, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    released: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    loads: tuple[Load, ...] = ()
    received: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    outputs: dict[str, Count] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    offers: tuple[Offer, ...] = ()
    tables: tuple[TableChange, ...] = ()
    running: bool = False
    done: bool = False
    evicted: tuple[Count, ...] = ()
    block_sums: tuple[BlockSums, ...] = ()
    shared: tuple[SharedTokens, ...] = ()
    raised: str = ""


class HeldRequest(Brief, frozen=True, kw_only=True):
    """A request at the end of a record, with its block table in each group."""

    request: str
    status: str
    prompt_tokens: Count
    output_tokens: Count
    computed_tokens: Count
    tables: Lists


class SeenBlock(Brief, frozen=True, kw_only=True):
    """A block at the end of a record: its reference count, whether it is in the free queue, and
    whether it is cached."""

    block: Count
    refs: int
    free: bool = False
    cached: bool = False


class EngineState(Brief, frozen=True, kw_only=True):
    """The engine at the end of a record: its requests, the number of free blocks, and the blocks
    that the findings are about or that their requests hold."""

    requests: tuple[HeldRequest, ...]
    free_blocks: Count
    blocks: tuple[SeenBlock, ...] = ()


class StateLine(Line, frozen=True):
    """The line with the state of the engine."""

    state: EngineState


RecordLine: TypeAlias = RecordHeader | RecordedEvent | FindingLine | StateLine | EndLine
