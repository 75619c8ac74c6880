"""A fake worker: it executes real `SchedulerOutput`s on symbolic memory.

It keeps its own block tables from the scheduler's outputs, as a model runner does (see `batch`),
and never reads the scheduler. The model's `memory.run` computes what a step reads and writes, so
attention and states have the same semantics in both machines. With drafts, the worker computes the
position of a state from its own table, as the model runner does.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvproof.live import adapt
from kvproof.live.batch import Batch
from kvproof.model import config, draft_memory, memory, state
from kvproof.model.state import Content, Flight
from kvproof.model.step import Read

if TYPE_CHECKING:
    from kvproof.live.store import StoreLoad

Reads = tuple[Read, ...]
Accepted = Mapping[str, int]
"""The number of accepted draft tokens by request."""


class Worker(Batch):
    """One engine's model runner, without weights. `states` has, by request and group, the block
    with the state of the computed tokens; it is used only with a drafter."""

    def __init__(self, cfg: config.EngineConfig) -> None:
        super().__init__(cfg.overlaps)
        self.cfg = cfg
        self.memory: tuple[Content | None, ...] = (None,) * cfg.num_blocks
        self.states: dict[str, tuple[int, ...]] = {}

    def _copy_blocks(self, output: Any) -> None:
        self.memory = memory.copied(
            self._alone(), adapt.block_copies(output, self.cfg.partial_block_hits)
        ).memory

    def load(self, loads: "Iterable[StoreLoad]", requests: dict[str, state.Request]) -> None:
        """Fill the blocks of loads from a store, before the step runs."""
        engine = state.Engine(self.cfg.name, (), (), memory=self.memory)
        for name, tables, hit, external in loads:
            request = requests[name]._replace(tables=tables, hit=hit, external=external)
            engine = memory.load(self.cfg, engine, request)
        self.memory = engine.memory

    def _seen(self, request: state.Request) -> state.Request:
        """A request with the tables and states that the worker has for it."""
        name = request.id
        return request._replace(tables=self.tables[name], states=self.states.get(name, ()))

    def _alone(self) -> state.Engine:
        return state.Engine(self.cfg.name, (), (), memory=self.memory)

    def execute(
        self,
        output: Any,
        requests: dict[str, state.Request],
        waiting: Mapping[str, int] | None = None,
    ) -> tuple[tuple[Read, ...], tuple[Flight, ...]]:
        """Execute one step. Returns its reads, and each request's part of it. `requests` has the
        tokens of each scheduled request. Requests in `waiting` wait for an earlier step, which may
        reject at most that number of their draft tokens; they are executed later (see `run`)."""
        for name in self.update(output):
            self.states.pop(name, None)
        self._copy_blocks(output)
        samples, starts = self.samples(output), self.starts(output)
        awaited = waiting or {}
        first = {new.req_id for new in output.scheduled_new_reqs}
        first |= set(output.scheduled_cached_reqs.resumed_req_ids)
        batch, shares = [], []
        for name, tokens in output.num_scheduled_tokens.items():
            counted = requests[name]._replace(computed=starts[name] + tokens)
            request = self._seen(counted)
            if name not in awaited:
                batch.append((request, tokens))
            blocks = memory.used(self.cfg, request, tokens + awaited.get(name, 0))
            ahead = self.ahead(output, name) if self.cfg.overlaps else 0
            drafts = 0 if name in first else ahead
            shares.append(
                Flight(name, tokens, samples[name], blocks=blocks, ahead=ahead, drafts=drafts)
            )
        reads = self._run(batch)
        if self.cfg.overlaps:  # a part of a prompt of a session leaves its state in its own place
            for share in shares:
                if not share.samples:
                    self.states.pop(share.request, None)
        return reads, tuple(shares)

    def run(self, requests: Mapping[str, state.Request], shares: Iterable[Flight]) -> Reads:
        """Execute the parts of a step that had to wait. Returns the reads."""
        return self._run([(self._seen(requests[s.request]), s.tokens) for s in shares])

    def placed(self, request: state.Request, share: Flight, rejected: int) -> Flight:
        """The part of a step after `rejected` draft tokens in front of it were rejected."""
        request = self._seen(request._replace(computed=request.computed - rejected))
        return share._replace(blocks=memory.used(self.cfg, request, share.tokens))

    def _run(self, batch: list[tuple[state.Request, int]]) -> Reads:
        engine, reads = memory.run(self.cfg, self._alone(), batch)
        self.memory = engine.memory
        return reads

    def accept(
        self, requests: Mapping[str, state.Request], shares: Iterable[Flight], drafts: Accepted
    ) -> None:
        """Update tokens and states after sampling. `drafts` has the number of accepted draft tokens
        of each request; `requests` includes the computed tokens of the step. A request that was
        preempted since then has lost its blocks; the scheduler sends its number of tokens when it
        resumes."""
        if not self.cfg.drafts:
            return
        for share in shares:
            name, count = share.request, drafts.get(share.request, 0)
            if name not in requests or share.fate != state.COUNTS:
                continue
            self.lengths[name] += count - share.ahead
            engine, seen = draft_memory.settled(
                self.cfg, self._alone(), self._seen(requests[name]), count
            )
            self.memory = engine.memory
            if share.samples or not self.cfg.overlaps:
                self.states[name] = seen.states
