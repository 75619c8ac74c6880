"""The batch of a model runner: block tables and lengths of its requests.

They are kept from the scheduler's outputs alone, as `GPUModelRunner` and its `BlockTable` do.
"""

from typing import Any, NamedTuple

from kvproof.model.state import Table


class ComputedPart(NamedTuple):
    """One request's part of a step: the tokens from `start` to `end` of its text are computed.
    After them come `rejected` slots of draft tokens that are not accepted. Then it may sample."""

    request: str
    start: int
    end: int
    rejected: int
    samples: bool


class Batch:
    """The requests of a worker, by id. `tables` has a block table for each group, `prompts` the
    number of prompt tokens and `lengths` the number of tokens known, sampled ones included.
    `places` has the requests that keep a place in the batch: they were scheduled, and the scheduler
    has not reported that they left. Steps may `overlap`."""

    def __init__(self, overlap: bool) -> None:
        self.overlap = overlap
        self.tables: dict[str, tuple[Table, ...]] = {}
        self.places: set[str] = set()
        self.prompts: dict[str, int] = {}
        self.lengths: dict[str, int] = {}

    def update(self, output: Any) -> set[str]:
        """Update tables and lengths for a step. Returns the requests that left their place or begin
        again with a new table."""
        begun = self.update_places(output)
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = tuple(tuple(ids) for ids in new.block_ids)
        cached = output.scheduled_cached_reqs
        for name, ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self.tables[name] = tuple(tuple(group) for group in ids)
                begun.add(name)
            elif ids is not None:
                held = self.tables[name]
                self.tables[name] = tuple((*t, *new) for t, new in zip(held, ids, strict=True))
        self._update_lengths(output)
        return begun

    def update_places(self, output: Any) -> set[str]:
        """Update the places for a step. Returns the requests that have left theirs."""
        left = {*output.finished_req_ids, *(output.preempted_req_ids or ())}
        self.places -= left
        self.places.update(output.num_scheduled_tokens)
        return left

    def _update_lengths(self, output: Any) -> None:
        """The scheduler's number is lower where it discarded a token."""
        for new in output.scheduled_new_reqs:
            ids = new.prompt_embeds if new.prompt_token_ids is None else new.prompt_token_ids
            self.prompts[new.req_id] = len(ids)
            self.lengths[new.req_id] = len(new.prefill_token_ids or ids)
        cached = output.scheduled_cached_reqs
        for name, sampled in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            total = self.prompts[name] + sampled
            if name in cached.resumed_req_ids:
                self.lengths[name] = total
            self.lengths[name] = min(self.lengths[name], total)

    @staticmethod
    def begun(output: Any) -> set[str]:
        """The scheduled requests that did not run before the step: new ones, and those that resume
        after a preemption."""
        new = {each.req_id for each in output.scheduled_new_reqs}
        return new | {*output.scheduled_cached_reqs.resumed_req_ids}

    @staticmethod
    def starts(output: Any) -> dict[str, int]:
        """The number of tokens of each scheduled request that are computed before the step."""
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        return starts | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))

    def samples(self, output: Any) -> dict[str, bool]:
        """Whether each scheduled request reaches the end of its tokens, and so samples a new one
        (`GPUModelRunner.discard_request_mask`). Its length grows by what it samples."""
        starts, samples = self.starts(output), {}
        for name, tokens in output.num_scheduled_tokens.items():
            samples[name] = starts[name] + tokens >= self.lengths[name]
            ahead = self.ahead(output, name) if self.overlap else 0
            self.lengths[name] += samples[name] + ahead
        return samples

    @staticmethod
    def ahead(output: Any, name: str) -> int:
        """Tokens of a request that a step computes after its known and pending tokens."""
        return len(output.scheduled_spec_decode_tokens.get(name, ()))
