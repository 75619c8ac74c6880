"""A cluster: its engines, their pools and cache groups, and the traffic it is to carry.

Small by default. What cannot be, or is not modelled, is refused: see `engine_limits` and
`cluster_limits`.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

from kvproof.model.config import cluster_limits, engine_limits
from kvproof.model.config.limits import within
from kvproof.model.errors import UsageError, unknown

KINDS = ("full", "window", "mamba")
BACK = " back"
"""The end of the name of a reverse transfer (D to P) (see `follow_up_turns`)."""


@dataclass(frozen=True)
class Group:
    """One KV-cache group: layers of one kind that share a block table.

    `block_size` is in tokens. `window` (tokens) is for kind `window`. `mode` is for kind `mamba`:
    `align` caches states at block boundaries, `none` keeps one state a request and caches nothing.
    `eagle` says that a drafter of the EAGLE or MTP kind has layers here (see `Engine.drafts`).
    """

    kind: str
    block_size: int
    window: int = 0
    mode: str = "align"
    eagle: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of cache group", self.kind, KINDS)
        within("block_size", self.block_size, 1, "block_size")
        if self.kind == "window":
            within("window", self.window, 1, "window")
        if self.mode not in ("align", "none"):
            raise unknown("Mamba cache mode", self.mode, ("align", "none"))
        if self.eagle and self.kind == "mamba":
            raise UsageError(
                "A drafter has no Mamba layers, and a Mamba group is marked eagle. "
                "Write eagle for an attention group."
            )

    @property
    def attention(self) -> bool:
        """Whether blocks of this group hold KV per token (and not one state)."""
        return self.kind != "mamba"

    @property
    def aligned(self) -> bool:
        """Whether this is a Mamba group whose states are cached at block boundaries."""
        return self.kind == "mamba" and self.mode == "align"


@dataclass(frozen=True)
class Engine:
    """One vLLM engine.

    `num_blocks` counts the null block, as vLLM does. `chunk_tokens` is the token budget of one
    step (`max_num_batched_tokens`). A logical attention block is `physical_per_logical` kernel
    blocks; transfers move kernel blocks. With `store` an external store brings, within the step,
    prefixes that were computed here before and are no longer cached (see `store`).
    `policy` says who is served first: `fcfs` the one that came first, `priority` the job of the
    lowest priority number, and among equals the one that came first. At most
    `max_requests` run at a time (`max_num_seqs`).
    `steps_in_flight` is how many steps may be dispatched before the output of the first has
    arrived: 2 is vLLM's async scheduling (`VllmConfig.max_concurrent_batches`; see `in_flight`).
    `retention` says which blocks of windows and states stay in the cache
    (`prefix_cache_retention_interval`): None for all that could serve a hit, 0 for those at which a
    resent prompt or a sibling resumes, and above 0 also those at every multiple of so many tokens.
    `drafts` is the number of tokens that a drafter proposes for each request after each of its
    samples (`num_speculative_tokens`); 0 is no drafter (see `drafting`).
    With `kv_events` the engine tells what it stores in the cache and removes from it
    (`KVEventsConfig.enable_kv_cache_events`; see `reports`).
    `match_unit` is the number of tokens between two prefixes that have a hash
    (`prefix_match_unit`), 0 for what all block sizes are multiples of. Where it is less than the
    block of a Mamba group, hits may end inside a block (see `partial_block_hits`).
    A hash covers `hash_lookahead_tokens` tokens after its block (`num_hash_lookahead_tokens`).
    """

    name: str
    groups: tuple[Group, ...]
    num_blocks: int = 8
    role: str = "both"
    chunk_tokens: int = 8
    physical_per_logical: int = 1
    prefix_caching: bool = True
    retention: int | None = None
    kv_events: bool = False
    store: bool = False
    policy: str = "fcfs"
    max_requests: int = 256
    steps_in_flight: int = 1
    drafts: int = 0
    match_unit: int = 0
    hash_lookahead_tokens: int = 0

    def __post_init__(self) -> None:
        engine_limits.check(self)

    @cached_property
    def lookahead(self) -> int:
        """Slots after the tokens of a step in which the drafter may write: as many as it proposes
        where it has layers of its own (vLLM's `num_lookahead_tokens`)."""
        return self.drafts if any(g.eagle for g in self.groups) else 0

    @cached_property
    def eagle_drop_tokens(self) -> int:
        """Tokens that a prompt must share with a cached one after a hit: a block of each group that
        the drafter has layers in. What these layers hold for a token depends on the next one, so
        that the last block of a match is not taken (vLLM's `drop_eagle_block`)."""
        return max((g.block_size for g in self.groups if self.drops_match(g)), default=0)

    def drops_match(self, group: Group) -> bool:
        """Whether a hit drops the last block of a match: not where hashes cover the next token."""
        return group.eagle and not self.hash_lookahead_tokens

    @cached_property
    def partial_block_hits(self) -> bool:
        """Whether a hit may end inside a block: beside an aligned Mamba group whose blocks have
        more than one prefix with a hash (vLLM's `enable_partial_hash_hits`)."""
        return any(g.aligned and g.block_size > self.hash_unit for g in self.groups)

    @cached_property
    def hit_unit(self) -> int:
        """Prefix hits are multiples of this many tokens: of whole blocks of every group (vLLM's
        `scheduler_block_size`), or of the prefixes that have a hash."""
        if self.partial_block_hits:
            return self.hash_unit
        return math.lcm(*(g.block_size for g in self.groups if g.kind != "mamba" or g.aligned), 1)

    @cached_property
    def hash_unit(self) -> int:
        """Tokens between two prefixes that have a hash (vLLM's `hash_block_size`)."""
        return self.match_unit or math.gcd(
            *(g.block_size for g in self.groups if g.kind != "mamba" or g.aligned)
        )

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
        """Whether blocks are kept where two prompts were seen to part."""
        sparse = self.retention is not None and any(g.kind == "window" for g in self.groups)
        return self.aligned_group is not None or sparse

    @property
    def by_priority(self) -> bool:
        """Whether the priority of jobs counts."""
        return self.policy == "priority"

    @property
    def connected(self) -> bool:
        """Whether the engine hands requests over, or takes them over."""
        return self.role != "both"

    @property
    def has_connector(self) -> bool:
        """Whether the engine has a KV connector: for hand-overs, or a store."""
        return self.connected or self.store

    @property
    def overlaps(self) -> bool:
        """Whether a step is scheduled while an earlier one is under way (async scheduling)."""
        return self.steps_in_flight > 1

    def kernel_tokens(self, group: int) -> int:
        """Tokens in one kernel block of an attention group."""
        return self.groups[group].block_size // self.physical_per_logical


@dataclass(frozen=True)
class Job:
    """One request of the traffic: a prompt (one character is one token) and its length of output.

    In a cluster with a prefill and a decode engine it runs on P first, then on D. `embeds` sends
    the prompt as embeddings instead of token ids. A lower `priority` is served first, by engines
    whose policy it is. A job with `parts` is a session: they are sent one after another, each when
    what came before has been answered with `max_tokens` tokens. A job that `follows` another is the
    next turn of its conversation (see `follow_up_turns`).
    """

    name: str
    prompt: str
    max_tokens: int = 1
    embeds: bool = False
    priority: int = 0
    parts: tuple[str, ...] = ()
    follows: str = ""

    def __post_init__(self) -> None:
        within(f"the number of prompt tokens of {self.name}", len(self.prompt), 1, "prompt tokens")
        within(f"max_tokens of {self.name}", self.max_tokens, 1, "max_tokens")
        within(f"the priority of {self.name}", self.priority, 0, "priority")
        for part in self.parts:
            within(f"the number of tokens of a part of {self.name}", len(part), 1, "prompt tokens")

    @property
    def conversation(self) -> str:
        """The prompt and its answer. D never computes the last token."""
        return self.prompt + "." * self.max_tokens

    @property
    def tokens_most(self) -> int:
        """Tokens of all parts of the prompt and all answers."""
        prompts = (self.prompt, *self.parts)
        return sum(map(len, prompts)) + len(prompts) * self.max_tokens


@dataclass(frozen=True)
class Cluster:
    """Engines and traffic. `aborts`, `losses`, `evictions` and `resets` switch on events of the
    environment; `failures` bounds how many transfers, or loads of a store, may fail. With
    `sessions` jobs may come in parts (see `sessions`). `resets` are those of an idle engine; with
    `resets_any_time` they come under load too (see `resets`). With `oversized` drawn jobs
    may need more blocks than an engine has. With `stray` a worker also reports a transfer again, or
    one of a request that is gone; that of vLLM 0.32.0's NIXL pull connector keeps from it by
    itself. With `follow_up_turns` D keeps what it has of a request it finished, and P may load that
    for the next turn. `transfer` says who moves the blocks of a KV transfer: with
    `pull` D reads those of P; with `push` P writes those of D (`NixlPushConnector`; see `push`)."""

    name: str
    engines: tuple[Engine, ...]
    jobs: tuple[Job, ...] = ()
    aborts: bool = False
    failures: int = 0
    losses: bool = False
    evictions: bool = False
    resets: bool = False
    load_failure: str = "fail"
    sessions: bool = False
    resets_any_time: bool = False
    oversized: bool = False
    stray: bool = False
    follow_up_turns: bool = False
    transfer: str = "pull"

    def __post_init__(self) -> None:
        cluster_limits.check(self)

    @property
    def disaggregated(self) -> bool:
        """Whether this is a prefill node and a decode node."""
        return len(self.engines) == 2

    @property
    def pushes(self) -> bool:
        """Whether P writes into D's blocks, where otherwise D reads P's."""
        return self.transfer == "push"

    @property
    def by_priority(self) -> bool:
        """Whether the priority of jobs counts on some engine."""
        return any(e.by_priority for e in self.engines)

    @cached_property
    def prefill(self) -> Engine:
        """The engine a job runs on first."""
        return next(e for e in self.engines if e.role in ("both", "prefill"))

    @cached_property
    def decode(self) -> Engine:
        """The engine a job runs on last."""
        return next(e for e in self.engines if e.role in ("both", "decode"))

    def engine(self, name: str) -> Engine:
        """The engine of this name."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        raise unknown("engine", name, (e.name for e in self.engines))

    def job(self, name: str) -> Job:
        """The job of this name."""
        for job in self.jobs:
            if job.name == name:
                return job
        raise unknown("job", name, (j.name for j in self.jobs))

    def follow_up(self, name: str) -> Job | None:
        """The job that follows this one, if there is one."""
        return next((job for job in self.jobs if job.follows == name), None)

    def carrying(self, *jobs: Job) -> "Cluster":
        """The same cluster with other traffic."""
        return dataclasses.replace(self, jobs=jobs)
