"""What can be seen of a cluster. The model computes it; the live adapter reads it off vLLM.

Everything is a small immutable value with equality, so states can be compared, hashed and
written to traces. Invariants look at nothing else.

Tokens are characters and a prefix is a string: the KV of the third token of prompt "abcd" is
written as the prefix "abc" it was computed from. Sampled tokens are dots.
"""

from typing import Any, NamedTuple

from kvproof.model.errors import NotAllowed, unknown
from kvproof.model.ghost_state import EMPTY, Ghost
from kvproof.model.kv_events import Report
from kvproof.model.phases import Phase, writable

NULL = 0
"""The id of the null block: a placeholder that holds nothing and belongs to nobody."""

SAMPLED = "."
"""The token every request samples."""

DRAFT = "?"
"""A token that a drafter proposed and nobody has accepted. One that is accepted becomes SAMPLED."""

Key = tuple[int, str]
"""A cache key: the group, and the prefix up to the end of the block. Stands for a block hash."""

Table = tuple[int, ...]
"""One group's block table of a request: block ids in the order of positions."""

WAITING = "waiting"
RUNNING = "running"
PREEMPTED = "preempted"
LOADING = "loading"
"""Blocks are allocated and a transfer fills them; not cached yet."""
LOADED = "loaded"
"""The transfer ended well; the next step takes the blocks over."""
FAILED = "failed"
"""The transfer failed and is to be recomputed; the next step drops the blocks."""
SENDING = "sending"
"""Finished on P; its blocks stay until D has read them or the lease ends."""
ABORTED = "aborted"
"""Ended by its user while a transfer still writes its blocks; they stay until that ends."""
PAUSED = "paused"
"""A session between two parts of its prompt: it waits for its user, and keeps its blocks."""
MISQUEUED = "misqueued"
"""In no queue of the scheduler that it should be in, or in more than one. The model has none."""


Cached = tuple[tuple[Key, tuple[int, ...]], ...]
"""The map from keys to the blocks cached under them, the one a hit takes first in front."""


class Content(NamedTuple):
    """What one physical block holds.

    `slots` are prefixes: for attention, per slot, the one whose last token's KV it is; for Mamba a
    single one, whose state it is. An empty string was never written.
    """

    group: int
    slots: tuple[str, ...]


class Block(NamedTuple):
    """One block of the pool: references to it, and the key it is cached under. `also` are further
    keys it is cached under, of prefixes that end inside it."""

    refs: int = 0
    key: Key | None = None
    also: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys it is cached under."""
        return () if self.key is None else (self.key, *self.also)


class Request(NamedTuple):
    """A request as one engine sees it. Token counts are in tokens, `num_cached_blocks` in blocks.

    `submitted_prompt_tokens` is the prompt length as sent; on P the prompt may be shorter. `hit`
    and `external` are the tokens its last admission took from the local cache and from the
    connector. `preemptions` counts to one: what happens next depends on no more, and requests that
    preempt each other for ever come back to the same state.

    With a drafter, `drafts` are the proposed tokens that the next step may verify, or the step in
    flight verifies; `states` has, per group, the block that holds the state of the computed tokens
    (the null block for attention), for that is not told by its place in the table.
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

    @property
    def tokens(self) -> str:
        """Prompt and output: all tokens known so far."""
        return self.prompt + self.output


COUNTS = "counts"
"""The request of a dispatched step still runs: its output will be taken."""
LATE = "late"
"""The request was preempted since: the token still comes, and is kept."""
VOID = "void"
"""The request has ended, or begun anew: the output is thrown away."""


class Flight(NamedTuple):
    """One request's share of a dispatched step whose output has not arrived: the tokens computed,
    whether one is sampled, what will become of the output, and the blocks read or written. With a
    drafter, `ahead` of the tokens come after all that are known or pending, and `drafts` of these
    may be accepted."""

    request: str
    tokens: int
    samples: bool
    fate: str = COUNTS
    blocks: tuple[int, ...] = ()
    ahead: int = 0
    drafts: int = 0


class Engine(NamedTuple):
    """One engine: pool, cache, memory, requests in the order of their arrival, the step in
    flight, and the prefixes its external store can bring.

    Where steps overlap (`config.Engine.steps_in_flight`), `step` is not used. Then `steps` are
    those in flight, oldest first; `pending` has the placeholders of each request, which stand for
    tokens that are sampled and not known yet; `deferred` are blocks of requests that are gone, each
    list with the number of steps whose outputs it still waits for.

    `copies` are those of blocks that the step in the making hands to the worker: the group, the
    block that is copied, and the one it is copied to (see `partial`). After a step all are made.

    `reports` are the KV events of the step in the making, None where it tells none; after a step
    all are heard.

    `ghost` is no part of what can be observed: no machine looks at it (see `ghost_state`).
    """

    name: str
    blocks: tuple[Block, ...]
    free: tuple[int, ...]
    cached: Cached = ()
    memory: tuple[Content | None, ...] = ()
    requests: tuple[Request, ...] = ()
    running: tuple[str, ...] = ()
    step: tuple[tuple[str, int], ...] | None = None
    dead: str = ""
    stored: tuple[str, ...] = ()
    steps: tuple[tuple[Flight, ...], ...] = ()
    pending: tuple[tuple[str, int], ...] = ()
    deferred: tuple[tuple[int, tuple[int, ...]], ...] = ()
    reports: tuple[Report, ...] | None = None
    copies: tuple[tuple[int, int, int], ...] = ()
    ghost: Ghost = EMPTY

    @property
    def observed(self) -> "Engine":
        """The engine as it can be read off, without history."""
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
        """The engine with this request put in its place, or last."""
        if self.find(request.id) is None:
            return self._replace(requests=(*self.requests, request))
        return self._replace(
            requests=tuple(request if r.id == request.id else r for r in self.requests)
        )

    def without(self, name: str) -> "Engine":
        """The engine with this request gone."""
        return self._replace(
            requests=tuple(r for r in self.requests if r.id != name),
            running=tuple(r for r in self.running if r != name),
        )

    def flights(self, name: str) -> tuple[Flight, ...]:
        """A request's shares of the steps in flight, oldest first."""
        return tuple(f for step in self.steps for f in step if f.request == name)

    def placeholders(self, name: str) -> int:
        """Tokens of a request that are sampled, or will be, by steps in flight."""
        return dict(self.pending).get(name, 0)

    def blocks_for(self, key: Key) -> tuple[int, ...]:
        """Blocks cached under a key, the one a hit takes first."""
        for other, blocks in self.cached:
            if other == key:
                return blocks
        return ()


Lists = tuple[tuple[int, ...], ...]
"""Block lists, one a group."""


class Transfer(NamedTuple):
    """The KV transfer of one request: from P to D, or the reverse transfer from D to P for the next
    turn (see `phases`).

    `tokens` are those that the sender offers. `remote` are the sender's logical block ids before
    trimming, empty until it has finished, and `local` the receiver's; `pairs` are, per group, the
    receiver's and the sender's kernel block ids after it.
    """

    request: str
    phase: Phase
    tokens: int
    remote: Lists
    local: Lists = ()
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def to(self, phase: Phase, **changes: Any) -> "Transfer":
        """The transfer in another phase, with other fields changed too. Raises NotAllowed where no
        transition leads there."""
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
        """The state with this engine in its place."""
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
        """The state with a transfer put in its place, or ended (None)."""
        others = [t for t in self.transfers if t.request != request]
        return self._replace(
            transfers=tuple(sorted(others if transfer is None else [*others, transfer]))
        )

    def ending(self, engine: str, request: str) -> "State":
        """The state with a job over on an engine."""
        return self._replace(ended=tuple(sorted({*self.ended, (engine, request)})))
