"""An engine: its cache groups, its pool and its options."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from kvproof.model.config.group import Group
from kvproof.model.config.limits import Name, check_declared
from kvproof.model.errors import NotValid

Role = Literal["both", "prefill", "decode"]
Policy = Literal["fcfs", "priority"]

REQUESTS_MAX = 256
"""How many requests run at a time by default (vLLM's `max_num_seqs`)."""


class EngineConfig(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True, dict=True):
    """One vLLM engine.

    `num_blocks` counts the null block, as vLLM does. `chunk_tokens` is the token budget of one step
    (`max_num_batched_tokens`). `role` is both for an engine alone, else prefill or decode.
    `prefix_caching` is vLLM's `enable_prefix_caching`. A logical attention block consists of
    `physical_per_logical` kernel blocks; transfers copy kernel blocks. With `store`, an external
    store loads prefixes within the step: prefixes that this engine computed earlier and no longer
    has in its cache (see `store`). `policy` says which request is scheduled first: with `fcfs` the
    request that arrived first, with `priority` the request with the lowest priority number, and
    among equals the one that arrived first. At most `max_requests` requests run at a time
    (`max_num_seqs`). `steps_in_flight` is how many steps may be dispatched before the output of the
    first has arrived: 2 is vLLM's async scheduling (`VllmConfig.max_concurrent_batches`; see
    `in_flight`). `retention` (in tokens) says which window blocks and states stay in the cache
    (`prefix_cache_retention_interval`). None keeps all that could serve a hit. 0 keeps those at
    which the same prompt, or a prompt that shares a prefix with it, resumes. A number above 0 also
    keeps those at every multiple of that number. `drafts` is the number of tokens that a drafter
    proposes after each sampled token (`num_speculative_tokens`); 0 means no drafter (see `drafts`).
    With `kv_events` the engine reports what it stores in the cache and removes from it
    (`KVEventsConfig.enable_kv_cache_events`; see `kv_events`). `match_unit` is the number of tokens
    between two prefixes that have a hash (`prefix_match_unit`), 0 for the greatest common divisor
    of all block sizes. Where it is smaller than a Mamba block, hits may end inside a block (see
    `partial_block_hits`). `hash_lookahead_tokens` is the number of tokens after a block that its
    hash covers (`VllmConfig.num_hash_lookahead_tokens`). With an EAGLE drafter it may be 1, because
    the KV of the drafter's layers for a token depends on the next token. Then a hit takes the whole
    match, and a block is cached when the token after it is known. With `one_way`, P only sends KV
    and D only receives it (`kv_role` kv_producer and kv_consumer); otherwise both may do both
    (kv_both). `reserve_whole_prompt` says whether a waiting request is admitted only where all its
    tokens fit, not only its first chunk (`scheduler_reserve_full_isl`). With null a vLLM does as it
    does by default. A request beside other requests gets at most `long_prefill_tokens` tokens in
    one step (`long_prefill_token_threshold`); 0 means no such limit. Where another request runs, an
    admission leaves at least `watermark_blocks` blocks free (`watermark`, which vLLM takes as a
    fraction of the pool). With `prefix_checkpoint`, a state is also cached where a prompt parts
    from a cached one, inside a block (`enable_mamba_shared_prefix_checkpoint`).
    """

    name: Name
    groups: Annotated[tuple[Group, ...], Meta(min_length=1, max_length=16)]
    num_blocks: Annotated[int, Meta(ge=2, le=4096)] = 8
    role: Role = "both"
    chunk_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 8
    physical_per_logical: Annotated[int, Meta(ge=1, le=64)] = 1
    prefix_caching: bool = True
    retention: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    kv_events: bool = False
    store: bool = False
    policy: Policy = "fcfs"
    max_requests: Annotated[int, Meta(ge=1, le=100_000)] = REQUESTS_MAX
    steps_in_flight: Annotated[int, Meta(ge=1, le=2)] = 1
    drafts: Annotated[int, Meta(ge=0, le=4)] = 0
    match_unit: Annotated[int, Meta(ge=0, le=4096)] = 0
    hash_lookahead_tokens: Annotated[int, Meta(ge=0, le=1)] = 0
    one_way: bool = False
    reserve_whole_prompt: bool | None = None
    long_prefill_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    watermark_blocks: Annotated[int, Meta(ge=0, le=4095)] = 0
    prefix_checkpoint: bool = False

    checks: ClassVar[tuple[Callable[["EngineConfig"], None], ...]] = ()
    """Further checks of a new engine: the table of features, which the package `config` sets."""

    def __post_init__(self) -> None:
        check_declared(self, "engine")
        _check_blocks(self)
        for check in self.checks:
            check(self)

    @cached_property
    def block_sizes(self) -> frozenset[int]:
        """Block sizes, in tokens, of the groups that have more than one block for each request."""
        return frozenset(g.block_size for g in self.groups if g.attention or g.aligned)

    @cached_property
    def lookahead(self) -> int:
        """Slots after the tokens of a step that the drafter may write to: `drafts` where the
        drafter has its own layers, else 0 (vLLM's `num_lookahead_tokens`)."""
        return self.drafts if any(g.eagle for g in self.groups) else 0

    @property
    def drafter_is_apart(self) -> bool:
        """Whether the drafter has layers in some attention groups and not in others. A start-up of
        vLLM 0.32.0 marks such a group for an MTP drafter. For an EAGLE head it marks none, and then
        takes all for the drafter's (vllm#54094)."""
        return len({group.eagle for group in self.groups if group.attention}) > 1

    @cached_property
    def eagle_drop_tokens(self) -> int:
        """Tokens that a prompt must share with a cached prompt after a hit: one block of each group
        that has drafter layers. The KV of these layers for a token depends on the next token, so a
        hit drops the last block of a match (vLLM's `drop_eagle_block`)."""
        return max((g.block_size for g in self.groups if self.drops_match(g)), default=0)

    def drops_match(self, group: Group) -> bool:
        """Whether a hit drops the last block of a match in this group: where the group has drafter
        layers, unless the hash of a block covers the token after the block."""
        return group.eagle and not self.hash_lookahead_tokens

    @cached_property
    def partial_block_hits(self) -> bool:
        """Whether a hit may end inside a block: where the engine has an aligned Mamba group whose
        blocks contain more than one prefix with a hash (vLLM's `enable_partial_hash_hits`). A
        window is looked up by whole blocks, so wider blocks of a window prevent it
        (vllm#51843)."""
        inside = any(g.aligned and g.block_size > self.hash_unit for g in self.groups)
        whole = any(g.kind == "window" and g.block_size > self.hash_unit for g in self.groups)
        return inside and not whole

    @cached_property
    def hit_unit(self) -> int:
        """Prefix hits are multiples of this many tokens: of whole blocks of every group (vLLM's
        `scheduler_block_size`), or of the prefixes that have a hash."""
        if self.partial_block_hits:
            return self.hash_unit
        return math.lcm(*self.block_sizes)

    @cached_property
    def hash_unit(self) -> int:
        """Tokens between two prefixes that have a hash (vLLM's `hash_block_size`)."""
        return self.match_unit or math.gcd(*self.block_sizes)

    @cached_property
    def hash_block_size(self) -> int:
        """Tokens of each hash that a request has (vLLM's `hash_block_size`): the smallest block
        size, or fewer where hits may end inside a block."""
        smallest = min(g.block_size for g in self.groups)
        return smallest if self.aligned_group is None else self.hash_unit

    @cached_property
    def has_state(self) -> bool:
        """Whether some group keeps a Mamba state."""
        return any(g.kind == "mamba" for g in self.groups)

    @cached_property
    def aligned_group(self) -> Group | None:
        """The Mamba group in align mode, if there is one."""
        return next((g for g in self.groups if g.aligned), None)

    @cached_property
    def marks_shared_prefix_boundaries(self) -> bool:
        """Whether the engine keeps blocks at shared prefix boundaries, where two prompts
        diverge."""
        sparse = self.retention is not None and any(g.kind == "window" for g in self.groups)
        return self.aligned_group is not None or sparse

    @property
    def by_priority(self) -> bool:
        """Whether the priority of jobs counts."""
        return self.policy == "priority"

    @property
    def connected(self) -> bool:
        """Whether the engine is the prefill or the decode engine of a pair."""
        return self.role != "both"

    @property
    def has_connector(self) -> bool:
        """Whether the engine has a KV connector: for KV transfers, or a store."""
        return self.connected or self.store

    @property
    def receives(self) -> bool:
        """Whether a connector may write to blocks of the engine beside its steps. A producer only
        sends (`KVTransferConfig.is_kv_consumer`)."""
        return self.has_connector and not self.produces

    @property
    def produces(self) -> bool:
        """Whether the engine only sends KV (`kv_role` kv_producer)."""
        return self.one_way and self.role == "prefill"

    @property
    def split_tokens(self) -> int:
        """The most tokens of a request beside others that a step computes. A Mamba block with more
        tokens is computed in several chunks."""
        return min(self.chunk_tokens, self.long_prefill_tokens or self.chunk_tokens)

    @property
    def overlaps(self) -> bool:
        """Whether a step may be scheduled while an earlier step is in flight (async scheduling)."""
        return self.steps_in_flight > 1

    def kernel_tokens(self, group: int) -> int:
        """Tokens in one kernel block of an attention group."""
        return self.groups[group].block_size // self.physical_per_logical


def _check_blocks(engine: EngineConfig) -> None:
    widest = max(engine.block_sizes, default=1)
    if any(widest % size for size in engine.block_sizes):
        raise NotValid(
            f"The block sizes {sorted(engine.block_sizes)} of engine {engine.name} do not divide "
            f"one another. Use sizes that divide the largest, {widest}.",
            "groups",
        )
    ratio = engine.physical_per_logical
    if any(g.attention and g.block_size % ratio for g in engine.groups):
        raise NotValid(
            f"A block size of engine {engine.name} is not a multiple of its "
            f"physical_per_logical {ratio}. Use a ratio that divides every block size.",
            "physical_per_logical",
        )
