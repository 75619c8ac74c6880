"""One request's block table in one cache group, in counts.

The system is parametric in every size; the kind of the group is fixed. It has no positions and no
block ids: a count says how many, and the model says which. `projection` computes the counts of a
state.

Sources: `Scheduler.schedule`, `KVCacheManager.allocate_slots`, `SingleTypeKVCacheManager` and its
subclasses, `NixlConnectorScheduler` of vLLM V1.
"""

from typing import NamedTuple

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, all_of, any_of, if_, max_, min_

GONE, WAITING, RUNNING, PREEMPTED, LOADING, LOADED, FAILED, SENDING, ABORTED = range(9)
NONE = 0
"""The counts of a request without tokens and blocks."""


class TableSizes(NamedTuple):
    """The sizes that a cluster fixes. In tokens: block size, window, the largest chunk, and the
    largest chunk beside other requests (`shared_chunk`). A hit unit has `units` blocks. The last
    four are 0 or 1: whether the engine caches prefixes, has a connector, is P, and recomputes after
    a failed load."""

    block_size: Num
    units: Num
    window: Num
    backoff: Num
    chunk: Num
    shared_chunk: Num
    max_tokens: Num
    caching: Num
    connected: Num
    sends: Num
    recomputes: Num

    @property
    def hit_unit(self) -> Num:
        """Prefix hits are multiples of this many tokens."""
        return self.units * self.block_size


class TableCounts(NamedTuple):
    """The counts. Tokens: `submitted_prompt_tokens` of the prompt as sent, `prompt` as kept, `out`
    sampled, `computed`; `hit` from the cache and `external` from the connector at the last
    admission; `shared_prefix_boundary`, where the next chunk stops. In blocks: `length` of the
    table, its `null` and `hashed` entries, and the cached counter."""

    status: Num = GONE
    submitted_prompt_tokens: Num = NONE
    prompt: Num = NONE
    out: Num = NONE
    computed: Num = NONE
    hit: Num = NONE
    external: Num = NONE
    shared_prefix_boundary: Num = NONE
    length: Num = NONE
    null: Num = NONE
    hashed: Num = NONE
    num_cached_blocks: Num = NONE

    @property
    def known(self) -> Num:
        """Prompt and output tokens."""
        return self.prompt + self.out

    @property
    def reach(self) -> Num:
        """The number of tokens for which the table has blocks."""
        return max_(self.computed, self.hit + self.external)

    def among(self, *statuses: int) -> Truth:
        """Whether the status is one of these."""
        return any_of(*(self.status == s for s in statuses))

    def emptied(self, status: Num) -> "TableCounts":
        """The counts without blocks and computed tokens."""
        return TableCounts(status, self.submitted_prompt_tokens, self.prompt, self.out)


GONE_TABLE = TableCounts()


class GroupTable:
    """The behaviour of one kind of group."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def skipped(self, sizes: TableSizes, computed: Num) -> Num:
        """Leading blocks no longer needed after `computed` tokens."""
        tokens: Num = 0
        if self.kind == "window":
            tokens = counts.tokens_skipped_by_window(computed, sizes.window)
        if self.kind in ("mamba", "state"):
            tokens = counts.tokens_skipped_by_state(computed)
        return counts.full_blocks(tokens, sizes.block_size)

    def null_in_hit(self, sizes: TableSizes, blocks: Num) -> Num:
        """The null entries at the start of the table of a hit with `blocks` blocks."""
        if self.kind == "window":
            need = counts.window_blocks_for_hit(sizes.window, sizes.block_size)
            return max_(blocks - need, 0)
        return max_(blocks - 1, 0) if self.kind == "mamba" else 0

    def released(self, sizes: TableSizes, table: TableCounts, computed: Num) -> TableCounts:
        """The table after the blocks that `computed` tokens no longer need are freed. For a state
        these are all blocks in front of it; some may be hashed (`hashing` sets `hashed`)."""
        behind = min_(self.skipped(sizes, computed), table.length)
        return table._replace(null=max_(table.null, behind))

    def grown(self, sizes: TableSizes, table: TableCounts, end: Num) -> TableCounts:
        """The table after it took blocks for `end` tokens."""
        if self.kind != "mamba":
            taken = counts.attention_blocks_predicted(end, sizes.block_size, table.length, 0)
            return table._replace(length=table.length + taken)
        taken = counts.state_blocks_predicted(end, sizes.block_size, table.length)
        blocks = counts.blocks_for_tokens(end, sizes.block_size)
        padding = if_(taken > 0, max_(blocks - 1 - table.length, 0), 0)
        return table._replace(length=table.length + padding + taken, null=table.null + padding)

    def counting(self, sizes: TableSizes, table: TableCounts, upto: Num) -> TableCounts:
        """The table after the full blocks of the first `upto` tokens were cached."""
        cacheable = counts.round_down(upto, sizes.hit_unit)
        num_cached_blocks = max_(
            table.num_cached_blocks, counts.full_blocks(cacheable, sizes.block_size)
        )
        return table._replace(
            num_cached_blocks=if_(sizes.caching == 1, num_cached_blocks, table.num_cached_blocks)
        )

    def hashing(self, sizes: TableSizes, table: TableCounts, hashed: Num) -> TableCounts:
        """The table with `hashed` hashed entries. Full attention hashes exactly the counted blocks;
        for other kinds the counts give only an upper limit."""
        exact = if_(sizes.caching == 1, table.num_cached_blocks, 0)
        return table._replace(hashed=exact if self.kind == "full" else hashed)

    def may_hash(self, before: TableCounts, after: TableCounts, hashed: Num) -> Truth:
        """Whether `hashed` entries may be hashed after a step: at most the real entries, and at
        most the entries hashed before plus the blocks that the counter passed in the step."""
        passed = after.num_cached_blocks - before.num_cached_blocks
        real = after.length - after.null
        return all_of(hashed >= 0, hashed <= real, hashed <= before.hashed + passed)
