"""A symbolic worker: it carries out real `SchedulerOutput`s on symbolic memory.

It keeps its own block tables from what the scheduler sends, as a model runner does, and never
looks into the scheduler. What a step reads and writes is the model's `memory.run`: the semantics
of attention and of a state are the same for both machines. Where the state of a request with drafts
is, it reckons as the runner does, from columns of its own table.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvproof.live import adapt
from kvproof.model import config, memory, state
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.features import drafting
from kvproof.model.state import Content, Flight, Table
from kvproof.model.step import Read

if TYPE_CHECKING:
    from kvproof.live.store import Load

Reads = tuple[Read, ...]
Accepted = Mapping[str, int]
"""Requests of which drafts were accepted, and how many."""


class Worker:
    """One engine's model runner, without a model. `states` has, by request and group, the block
    with the state of the computed tokens; only an engine with a drafter keeps it."""

    def __init__(self, cfg: config.Engine) -> None:
        self.cfg = cfg
        self.memory: tuple[Content | None, ...] = (None,) * cfg.num_blocks
        self.tables: dict[str, tuple[Table, ...]] = {}
        self.states: dict[str, tuple[int, ...]] = {}
        self.prompts: dict[str, int] = {}
        self.lengths: dict[str, int] = {}

    def _update_lengths(self, output: Any) -> None:
        """Tokens of each request, those it sampled here among them. What the scheduler counts on is
        less where it has thrown a token away."""
        for new in output.scheduled_new_reqs:
            ids = new.prompt_token_ids if new.prompt_embeds is None else new.prompt_embeds
            self.prompts[new.req_id] = len(ids)
            self.lengths[new.req_id] = len(new.prefill_token_ids or ids)
        cached = output.scheduled_cached_reqs
        for name, sampled in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            told = self.prompts[name] + sampled
            if name in cached.resumed_req_ids:
                self.lengths[name] = told
            self.lengths[name] = min(self.lengths[name], told)

    def _samples(self, output: Any) -> dict[str, bool]:
        """Whether each scheduled request reaches the end of its tokens, and samples another one
        (`GPUModelRunner.discard_request_mask`)."""
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        starts |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        samples = {}
        for name, tokens in output.num_scheduled_tokens.items():
            samples[name] = starts[name] + tokens >= self.lengths[name]
            ahead = self._ahead(output, name) if self.cfg.overlaps else 0
            self.lengths[name] += samples[name] + ahead
        return samples

    def _ahead(self, output: Any, name: str) -> int:
        """Tokens of a request that a step computes beyond those that are known or pending."""
        return len(output.scheduled_spec_decode_tokens.get(name, ()))

    def _update_tables(self, output: Any) -> None:
        for name in (*output.finished_req_ids, *(output.preempted_req_ids or ())):
            self.states.pop(name, None)
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = tuple(tuple(ids) for ids in new.block_ids)
        cached = output.scheduled_cached_reqs
        for name, ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self.tables[name] = tuple(tuple(group) for group in ids)
                self.states.pop(name, None)
            elif ids is not None:
                held = self.tables[name]
                self.tables[name] = tuple((*t, *new) for t, new in zip(held, ids, strict=True))

    def _copy_blocks(self, output: Any) -> None:
        self.memory = memory.copied(
            self._alone(), adapt.block_copies(output, self.cfg.partial_block_hits)
        ).memory

    def load(self, loads: "Iterable[Load]", requests: dict[str, state.Request]) -> None:
        """A store fills the blocks that its scheduler side was given, before the step runs."""
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
        """Take in one step and run it: what was read, and each request's share of it. `requests`
        gives the tokens of each scheduled request. Those that are `waiting` for a step ahead, which
        may reject so many drafts of them, are run later (see `run`)."""
        self._update_tables(output)
        self._update_lengths(output)
        self._copy_blocks(output)
        samples = self._samples(output)
        awaited = waiting or {}
        first = {new.req_id for new in output.scheduled_new_reqs}
        first |= set(output.scheduled_cached_reqs.resumed_req_ids)
        batch, shares = [], []
        for name, tokens in output.num_scheduled_tokens.items():
            request = self._seen(requests[name])
            if name not in awaited:
                batch.append((request, tokens))
            blocks = memory.used(self.cfg, request, tokens + awaited.get(name, 0))
            ahead = self._ahead(output, name) if self.cfg.overlaps else 0
            drafts = 0 if name in first else ahead
            shares.append(
                Flight(name, tokens, samples[name], blocks=blocks, ahead=ahead, drafts=drafts)
            )
        return self._run(batch), tuple(shares)

    def run(self, requests: Mapping[str, state.Request], shares: Iterable[Flight]) -> Reads:
        """Run the shares of a step that had to wait: what was read."""
        return self._run([(self._seen(requests[s.request]), s.tokens) for s in shares])

    def placed(self, request: state.Request, share: Flight, rejected: int) -> Flight:
        """A share of a step, now that it is known that so many drafts before it were rejected."""
        request = self._seen(request._replace(computed=request.computed - rejected))
        return share._replace(blocks=memory.used(self.cfg, request, share.tokens))

    def _run(self, batch: list[tuple[state.Request, int]]) -> Reads:
        engine, reads = memory.run(self.cfg, self._alone(), batch)
        self.memory = engine.memory
        return reads

    def accept(
        self, requests: Mapping[str, state.Request], shares: Iterable[Flight], drafts: Accepted
    ) -> None:
        """After sampling: so many drafts of each request of the step were right. `requests` have
        computed what the step did. One that was preempted since has lost its blocks, and how many
        tokens it has is told when it comes back."""
        if not self.cfg.drafts:
            return
        for share in shares:
            name, count = share.request, drafts.get(share.request, 0)
            if name not in requests or share.fate != state.COUNTS:
                continue
            self.lengths[name] += count - share.ahead
            engine, seen = drafting.settled(
                self.cfg, self._alone(), self._seen(requests[name]), count, REFERENCE
            )
            self.memory = engine.memory
            if share.samples or not self.cfg.overlaps:
                self.states[name] = seen.states
