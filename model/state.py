"""The observable state of a cluster. The model computes it; the live adapter reads it from vLLM.

Every value is small and immutable and has equality, so that states can be compared, hashed and
written to traces. Invariants read nothing else.

A token is a character and a prefix is a string: the KV of the third token of prompt "abcd" is
represented by the prefix "abc", from which it was computed. A sampled token is a dot.
"""

from typing import Any, NamedTuple

from kvproof.model.config import DRAFT as DRAFT  # also a name of this module
from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed, unknown
from kvproof.model.ghost_state import EMPTY, Ghost
from kvproof.model.kv_events import Report
from kvproof.model.phases import Phase, writable

NULL = 0
"""The id of the null block: a placeholder that holds no KV and belongs to no request."""

SAMPLED = "."
"""The token every request samples."""

Key = tuple[int, str]
"""A cache key: the group, and the prefix up to the end of the block. It represents a block hash."""

Table = tuple[int, ...]
"""One group's block table of a request: block ids in the order of positions."""

WAITING = "waiting"
RUNNING = "running"
PREEMPTED = "preempted"
LOADING = "loading"
"""Blocks are allocated and a transfer fills them; they are not cached yet."""
LOADED = "loaded"
"""The transfer succeeded; the next step may cache the blocks and schedule the request."""
FAILED = "failed"
"""The transfer failed and the request will compute its prompt; the next step frees the blocks."""
SENDING = "sending"
"""The request is finished on P. P keeps its blocks until D has read them or the lease ends."""
ABORTED = "aborted"
"""The user aborted the request while a transfer writes to its blocks. The engine keeps the blocks
until the transfer ends."""
PAUSED = "paused"
"""A session between two parts of its prompt: it waits for its user and keeps its blocks."""
MISQUEUED = "misqueued"
"""The request is in no scheduler queue although its status requires one, or it is in several. The
model never has this status."""


Cached = tuple[tuple[Key, tuple[int, ...]], ...]
"""The map from keys to the blocks cached under them. A hit takes the first block."""


class Content(NamedTuple):
    """The content of one physical block.

    `slots` are prefixes. In an attention block each slot holds the KV of the last token of its
    prefix. A Mamba block has one slot: the state after its prefix. An empty string means that the
    slot was never written.
    """

    group: int
    slots: tuple[str, ...]


class Block(NamedTuple):
    """One block of the pool: its reference count, and the key under which it is cached. `also` has
    further keys of the block, for prefixes that end inside it."""

    refs: int = 0
    key: Key | None = None
    also: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys under which the block is cached."""
        return () if self.key is None else (self.key, *self.also)


class Request(NamedTuple):
    """A request on one engine. Token counts are in tokens, `num_cached_blocks` is in blocks.

    `submitted_prompt_tokens` is the prompt length as sent; on P the prompt may be shorter. `hit`
    and `external` are the tokens that the last admission took from the local cache and from the
    connector. `preemptions` is 0 or 1: the next steps depend on no more, and requests that preempt
    each other forever return to the same state.

    With a drafter, `drafts` is the number of draft tokens that the step in flight verifies, or that
    the next step may verify. `states` has, for each group, the block with the state of the computed
    tokens (the null block for attention), because its table position does not identify that block.
    If the model `stops`, the answer ends with the token of this number, and not with `max_tokens`.
    """

    id: str
    status: str
    prompt: str
    submitted_prompt_tokens: int
    max_tokens: int
    route: str = "local"
    embeds: bool = False
    output: str = ""
    computed: int = 0
    tables: tuple[Table, ...] = ()
    num_cached_blocks: tuple[int, ...] = ()
    hit: int = 0
    external: int = 0
    shared_prefix_boundary: int = 0
    preemptions: int = 0
    drafts: int = 0
    states: tuple[int, ...] = ()
    stops: int = 0

    @property
    def answer_tokens(self) -> int:
        """The number of tokens of the whole answer."""
        return min(self.stops or self.max_tokens, self.max_tokens)

    @property
    def tokens(self) -> str:
        """Prompt and output: all tokens known so far."""
        return self.prompt + self.output


COUNTS = "counts"
"""The request of a dispatched step still runs; the scheduler will use the output."""
LATE = "late"
"""The request was preempted after the step was dispatched; the scheduler will keep the sampled
token."""
VOID = "void"
"""The request has ended or started over; the scheduler will discard the output."""


class Flight(NamedTuple):
    """One request's part of a dispatched step whose output has not arrived: the number of computed
    tokens, whether the step samples a token, what the scheduler will do with the output (`fate`),
    and the blocks that the step reads or writes. With a drafter, `ahead` of the computed tokens
    come after all known and pending tokens, and `drafts` of these may be accepted."""

    request: str
    tokens: int
    samples: bool
    fate: str = COUNTS
    blocks: tuple[int, ...] = ()
    ahead: int = 0
    drafts: int = 0


class Death(NamedTuple):
    """How an engine died: the exception, the function that raised it, what it says, and the
    statement of the source that raised it. The reference has no exceptions, only `message`."""

    exception: str = ""
    function: str = ""
    message: str = ""
    statement: str = ""

    @property
    def place(self) -> str:
        """The exception and the function: "AssertionError in some_function"."""
        return f"{self.exception} in {self.function}" if self.exception else self.message

    @property
    def words(self) -> str:
        """The exception, the function, the message and the statement, in words."""
        parts = (self.place, self.message) if self.exception else (self.message,)
        return ": ".join(filter(None, parts))


class Engine(NamedTuple):
    """One engine: block pool, prefix cache, memory, requests in the order of their arrival, the
    step in flight, and the prefixes that its external store can load.

    Where steps overlap (`EngineConfig.steps_in_flight`), `step` is not used. Instead, `steps` has
    the steps in flight, oldest first. `pending` has the number of placeholders of each request; a
    placeholder represents a sampled token that is not known yet. `deferred` has lists of blocks of
    removed requests, each with the number of step outputs that must arrive before the blocks are
    freed.

    `copies` are the block copies of the current step: group, source block and target block (see
    `partial_block_hits`). It is empty after a step.

    `reports` are the KV events of the current step, None where KV events are off. It is empty after
    a step.

    `ghost` cannot be observed, and no machine reads it (see `ghost_state`).
    """

    name: str
    blocks: tuple[Block, ...]
    free: tuple[int, ...]
    cached: Cached = ()
    memory: tuple[Content | None, ...] = ()
    requests: tuple[Request, ...] = ()
    running: tuple[str, ...] = ()
    step: tuple[tuple[str, int], ...] | None = None
    dead: Death | None = None
    stored: tuple[str, ...] = ()
    steps: tuple[tuple[Flight, ...], ...] = ()
    pending: tuple[tuple[str, int], ...] = ()
    deferred: tuple[tuple[int, tuple[int, ...]], ...] = ()
    reports: tuple[Report, ...] | None = None
    copies: tuple[tuple[int, int, int], ...] = ()
    ghost: Ghost = EMPTY

    @property
    def observed(self) -> "Engine":
        """The observable engine, without ghost state."""
        return self._replace(ghost=EMPTY)

    def find(self, name: str) -> Request | None:
        """The request of this name, or None where the engine does not hold it."""
        for request in self.requests:
            if request.id == name:
                return request
        return None

    def request(self, name: str) -> Request:
        """The request of this name. Raises UsageError where the engine does not hold it."""
        request = self.find(name)
        if request is None:
            raise unknown(f"request on engine {self.name}", name, (r.id for r in self.requests))
        return request

    def with_request(self, request: Request) -> "Engine":
        """The engine with this request replaced, or added as the last one."""
        if self.find(request.id) is None:
            return self._replace(requests=(*self.requests, request))
        return self._replace(
            requests=tuple(request if r.id == request.id else r for r in self.requests)
        )

    def without(self, name: str) -> "Engine":
        """The engine without this request."""
        return self._replace(
            requests=tuple(r for r in self.requests if r.id != name),
            running=tuple(r for r in self.running if r != name),
        )

    def flights(self, name: str) -> tuple[Flight, ...]:
        """The request's parts of the steps in flight, oldest first."""
        return tuple(f for step in self.steps for f in step if f.request == name)

    def unverified(self, name: str) -> int:
        """The number of tokens of a request in flight that may be rejected. Its next step may start
        that many tokens earlier than scheduled."""
        return sum(f.ahead for f in self.flights(name) if f.fate == COUNTS)

    def placeholders(self, name: str) -> int:
        """The number of placeholders of a request: tokens that steps in flight sample and that are
        not known yet."""
        return dict(self.pending).get(name, 0)

    def blocks_for(self, key: Key) -> tuple[int, ...]:
        """The blocks cached under a key. A hit takes the first one."""
        for other, blocks in self.cached:
            if other == key:
                return blocks
        return ()


Lists = tuple[tuple[int, ...], ...]
"""Block lists, one for each group."""


class Transfer(NamedTuple):
    """The KV transfer of one request: from P to D, or the reverse transfer from D to P for the next
    turn (see `phases`).

    `tokens` is the number of tokens that the sender offers. `remote` has the sender's logical block
    ids before trimming; it is empty until the sender has finished. `local` has the receiver's.
    `pairs` has, for each group, the receiver's and the sender's kernel block ids after trimming.
    """

    request: str
    phase: Phase
    tokens: int
    remote: Lists
    local: Lists = ()
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def to(self, phase: Phase, **changes: Any) -> "Transfer":
        """The transfer in another phase, with these fields changed. Raises NotAllowed where no
        transition leads to that phase."""
        if not writable(self.phase, phase):
            raise NotAllowed(f"the transfer of {self.request} goes from {self.phase} to {phase}")
        return self._replace(phase=phase, **changes)


class State(NamedTuple):
    """The cluster: its engines, the KV transfers, and the jobs that ended on an engine."""

    engines: tuple[Engine, ...]
    transfers: tuple[Transfer, ...] = ()
    ended: tuple[tuple[str, str], ...] = ()
    failures: int = 0

    def engine(self, name: str) -> Engine:
        """The engine of this name. Raises UsageError where there is none."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        raise unknown("engine", name, (e.name for e in self.engines))

    def with_engine(self, engine: Engine) -> "State":
        """The state with this engine replaced."""
        return self._replace(
            engines=tuple(engine if e.name == engine.name else e for e in self.engines)
        )

    def transfer(self, request: str) -> Transfer | None:
        """The transfer of this name, or None."""
        for transfer in self.transfers:
            if transfer.request == request:
                return transfer
        return None

    def phase(self, request: str) -> Phase:
        """The phase of the transfer of this name, NONE where there is no such transfer."""
        transfer = self.transfer(request)
        return Phase.NONE if transfer is None else transfer.phase

    def with_transfer(self, request: str, transfer: Transfer | None) -> "State":
        """The state with this transfer added or replaced, or removed (None)."""
        others = [t for t in self.transfers if t.request != request]
        return self._replace(
            transfers=tuple(sorted(others if transfer is None else [*others, transfer]))
        )

    def ending(self, engine: str, request: str) -> "State":
        """The state in which a job has ended on an engine."""
        return self._replace(ended=tuple(sorted({*self.ended, (engine, request)})))


def initial(cluster: Cluster) -> State:
    """The initial state of a cluster: all engines are idle, all blocks free, nothing is cached."""
    engines = tuple(
        Engine(
            name=e.name,
            blocks=(Block(),) * e.num_blocks,
            free=tuple(range(1, e.num_blocks)),
            memory=(None,) * e.num_blocks,
            reports=() if e.kv_events else None,
        )
        for e in cluster.engines
    )
    return State(engines)
