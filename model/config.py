"""A cluster: its engines, their pools and cache groups, and the traffic it is to carry.

Small by default. Every number has a limit, and the error says which.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvproof.model.errors import UsageError, unknown

KINDS = ("full", "window", "mamba")
ROLES = ("both", "prefill", "decode")
POLICIES = ("fcfs", "priority")
BACK = " back"
"""The end of the name of a hand-over from D to P (see `turns`)."""
TRANSFERS = ("pull", "push")
LIMITS = {
    "block_size": 4096,
    "num_blocks": 100_000,
    "chunk_tokens": 1_000_000,
    "window": 1_000_000,
    "physical_per_logical": 64,
    "retention": 1_000_000,
    "max_requests": 100_000,
    "priority": 1_000,
    "steps_in_flight": 2,
    "drafts": 4,
    "prompt tokens": 10_000,
    "max_tokens": 10_000,
}


def _check(what: str, value: int, lowest: int, limit: str) -> None:
    highest = LIMITS[limit]
    if not isinstance(value, int) or not lowest <= value <= highest:
        raise UsageError(
            f"{what} is {value!r}, outside {lowest} to {highest}. "
            f"Write a whole number from {lowest} to {highest}."
        )


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
        _check("block_size", self.block_size, 1, "block_size")
        if self.kind == "window":
            _check("window", self.window, 1, "window")
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
    block of a Mamba group, hits may end inside a block (see `partial`).
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

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise unknown("engine role", self.role, ROLES)
        if self.policy not in POLICIES:
            raise unknown("policy", self.policy, POLICIES)
        _check(f"max_requests of engine {self.name}", self.max_requests, 1, "max_requests")
        if not self.groups:
            raise UsageError(
                f"Engine {self.name} has no cache group. Write at least one, for example "
                "a full group of block size 2."
            )
        _check(f"num_blocks of engine {self.name}", self.num_blocks, 2, "num_blocks")
        _check(f"chunk_tokens of engine {self.name}", self.chunk_tokens, 1, "chunk_tokens")
        ratio = self.physical_per_logical
        _check(f"physical_per_logical of engine {self.name}", ratio, 1, "physical_per_logical")
        depth = self.steps_in_flight
        _check(f"steps_in_flight of engine {self.name}", depth, 1, "steps_in_flight")
        sizes = {g.block_size for g in self.groups if g.kind != "mamba" or g.aligned}
        widest = max(sizes, default=1)
        if any(widest % size for size in sizes):
            raise UsageError(
                f"The block sizes {sorted(sizes)} of engine {self.name} do not divide one another. "
                f"Write sizes that divide the largest, {widest}."
            )
        if any(g.attention and g.block_size % ratio for g in self.groups):
            raise UsageError(
                f"A block size of engine {self.name} is not a multiple of its "
                f"physical_per_logical {ratio}. Write a ratio that divides every block size."
            )
        if self.prefix_caching and any(g.kind == "mamba" and not g.aligned for g in self.groups):
            raise UsageError(
                f"Engine {self.name} caches prefixes beside a Mamba group of mode none, which "
                "vLLM does not allow. Write mode align, or prefix_caching false."
            )
        if self.store and self.role != "both":
            raise UsageError(
                f"Engine {self.name} has a store beside a hand-over, which kvproof does not model. "
                "Write role both, or store false."
            )
        self._check_partial(sizes)
        self._check_retention()
        self._check_drafts()
        self._check_events()

    def _check_partial(self, sizes: set[int]) -> None:
        if self.match_unit:
            _check(f"match_unit of engine {self.name}", self.match_unit, 1, "block_size")
            if self.aligned_group is None or any(size % self.match_unit for size in sizes):
                raise UsageError(
                    f"The match_unit {self.match_unit} of engine {self.name} is for an aligned "
                    f"Mamba group, and divides every block size. Write 0, or add such a group and "
                    f"write a divisor of {math.gcd(*sizes)}."
                )
        if self.aligned_group is None or (len(sizes) == 1 and self.hash_unit in sizes):
            return
        if any(g.aligned and g.block_size < max(sizes) for g in self.groups):
            raise UsageError(
                f"Engine {self.name} has a Mamba group of narrower blocks than {max(sizes)}, which "
                f"kvproof does not model. Write {max(sizes)} for every Mamba group."
            )
        full = [g for g in self.groups if g.kind == "full"]
        wide = [g for g in self.groups if g.kind == "window" and g.block_size > self.hash_unit]
        if len(full) != 1 or wide:
            raise UsageError(
                f"Hits of engine {self.name} may end inside a block, which kvproof models beside "
                f"one full group and windows in blocks of {self.hash_unit}. Write such groups, or "
                "one block_size for all and match_unit 0."
            )
        if self.connected or self.store or self.drafts or self.overlaps or self.by_priority:
            raise UsageError(
                f"Hits of engine {self.name} may end inside a block beside a connector, drafts, "
                "overlapping steps or a policy of priority, which kvproof does not model. Write an "
                "engine without these, or one block_size for all and match_unit 0."
            )
        if self.retention is not None or self.kv_events or not self.prefix_caching:
            raise UsageError(
                f"Hits of engine {self.name} may end inside a block beside retention, KV events or "
                "a prefix cache that is off, which kvproof does not model. Write an engine without "
                "these, or one block_size for all and match_unit 0."
            )

    def _check_events(self) -> None:
        if not self.kv_events:
            return
        if self.role != "both" or self.store or self.overlaps or self.drafts:
            raise UsageError(
                f"Engine {self.name} has KV events beside a connector, overlapping steps or "
                "drafts, which kvproof does not model. Write an engine without these, or "
                "kv_events false."
            )
        if all(g.kind != "full" for g in self.groups) or self.hash_unit < self.hit_unit:
            raise UsageError(
                f"A KV event of engine {self.name} could name a parent that full attention never "
                "told. Write a full group and one block_size for all groups, or kv_events false."
            )

    def _check_retention(self) -> None:
        if self.retention is None:
            return
        _check(f"retention of engine {self.name}", self.retention, 0, "retention")
        if not self.prefix_caching:
            raise UsageError(
                f"Engine {self.name} has a retention and caches no prefixes that it could keep. "
                "Write retention null, or prefix_caching true."
            )
        if self.store:
            raise UsageError(
                f"Engine {self.name} has a store beside sparse retention, which kvproof does not "
                "model. Write retention null, or store false."
            )
        if self.retention % self.hit_unit:
            raise UsageError(
                f"The retention {self.retention} of engine {self.name} is not where a hit can end. "
                f"Write a multiple of {self.hit_unit}, or 0."
            )
        if self.retention and all(g.kind == "full" for g in self.groups):
            raise UsageError(
                f"Engine {self.name} keeps blocks every {self.retention} tokens and has only full "
                "attention, which keeps them all. Write retention 0, or add another group."
            )

    def _check_drafts(self) -> None:
        _check(f"drafts of engine {self.name}", self.drafts, 0, "drafts")
        if not self.drafts and any(g.eagle for g in self.groups):
            raise UsageError(
                f"A group of engine {self.name} is marked eagle, and there is no drafter. "
                "Write drafts, the number of tokens it proposes."
            )
        if any(g.eagle and g.kind == "full" and g.block_size > self.hash_unit for g in self.groups):
            raise UsageError(
                f"A drafter has layers in a full group of engine {self.name} whose blocks are "
                "wider than others: vLLM then caches another end of a prompt, which kvproof does "
                "not cover yet. Write the smallest block_size for that group, or eagle false."
            )
        if self.connected and self.lookahead and self.has_state:
            raise UsageError(
                f"A drafter has layers on engine {self.name}, which hands over beside a Mamba "
                "group: vLLM then finds hits by the token that P cuts off, which kvproof does not "
                "cover yet. Write eagle false, or no Mamba group."
            )
        if self.drafts and self.store:
            raise UsageError(
                f"Engine {self.name} has a store and a drafter, which kvproof does not cover yet. "
                "Write store false, or drafts 0."
            )
        if self.retention is not None and self.proof not in (0, self.hit_unit):
            raise UsageError(
                f"Engine {self.name} has a retention and a drafter in groups of block size "
                f"{self.proof}, where hits are multiples of {self.hit_unit}, which kvproof does "
                "not cover yet. Write one block_size for all groups, or retention null."
            )
        if self.drafts and self.overlaps and self.has_state:
            raise UsageError(
                f"Engine {self.name} has overlapping steps and a drafter beside a Mamba group, "
                "which kvproof does not cover yet. Write steps_in_flight 1, or drafts 0."
            )
        if self.drafts and self.chunk_tokens <= self.drafts:
            raise UsageError(
                f"A step of engine {self.name} has {self.chunk_tokens} tokens, and a sample with "
                f"its {self.drafts} drafts needs more: vLLM then admits no prompt that was nearly "
                f"all cached. Write chunk_tokens of at least {self.drafts + 1}, or fewer drafts."
            )
        state = self.aligned_group
        if state is not None and self.drafts >= state.block_size:
            raise UsageError(
                f"A step of engine {self.name} with {self.drafts} drafts may pass two boundaries "
                f"of its Mamba blocks of {state.block_size} tokens, and its worker keeps one "
                f"state. Write less than {state.block_size} drafts."
            )

    @cached_property
    def lookahead(self) -> int:
        """Slots after the tokens of a step in which the drafter may write: as many as it proposes
        where it has layers of its own (vLLM's `num_lookahead_tokens`)."""
        return self.drafts if any(g.eagle for g in self.groups) else 0

    @cached_property
    def proof(self) -> int:
        """Tokens that a prompt must share with a cached one after a hit: a block of each group that
        the drafter has layers in. What these layers hold for a token depends on the next one, so
        that the last block of a match is not taken (vLLM's `drop_eagle_block`)."""
        return max((g.block_size for g in self.groups if g.eagle), default=0)

    @cached_property
    def partial(self) -> bool:
        """Whether a hit may end inside a block: beside an aligned Mamba group whose blocks have
        more than one prefix with a hash (vLLM's `enable_partial_hash_hits`)."""
        return any(g.aligned and g.block_size > self.hash_unit for g in self.groups)

    @cached_property
    def hit_unit(self) -> int:
        """Prefix hits are multiples of this many tokens: of whole blocks of every group (vLLM's
        `scheduler_block_size`), or of the prefixes that have a hash."""
        if self.partial:
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
    def marks_junctions(self) -> bool:
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
    next turn of its conversation (see `turns`).
    """

    name: str
    prompt: str
    max_tokens: int = 1
    embeds: bool = False
    priority: int = 0
    parts: tuple[str, ...] = ()
    follows: str = ""

    def __post_init__(self) -> None:
        _check(f"the number of prompt tokens of {self.name}", len(self.prompt), 1, "prompt tokens")
        _check(f"max_tokens of {self.name}", self.max_tokens, 1, "max_tokens")
        _check(f"the priority of {self.name}", self.priority, 0, "priority")
        for part in self.parts:
            _check(f"the number of tokens of a part of {self.name}", len(part), 1, "prompt tokens")

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
    `sessions` jobs may come in parts (see `session`). `resets` are those of an idle engine; with
    `resets_any_time` they come under load too (see `reset`). With `oversized` drawn jobs
    may need more blocks than an engine has. With `stray` a worker also reports a transfer again, or
    one of a request that is gone; that of vLLM 0.32.0's NIXL pull connector keeps from it by
    itself. With `turns` D keeps what it has of a request it finished, and P may load that for the
    next turn (see `turns`). `transfer` says who moves the blocks of a hand-over: with
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
    turns: bool = False
    transfer: str = "pull"

    def __post_init__(self) -> None:
        names = [e.name for e in self.engines]
        if not names or len(set(names)) < len(names):
            raise UsageError(
                f"The engines {names} are none or share a name. Write one or two engines with "
                "different names."
            )
        roles = sorted(e.role for e in self.engines)
        if roles not in (["both"], ["decode", "prefill"]):
            raise UsageError(
                f"A cluster of roles {roles} is not known. Write one engine of role both, or one "
                "prefill and one decode engine."
            )
        if self.load_failure not in ("fail", "recompute"):
            raise unknown("load failure policy", self.load_failure, ("fail", "recompute"))
        if self.stray and not self.disaggregated:
            raise UsageError(
                f"Cluster {self.name} has stray reports and no hand-over to report. "
                "Write one prefill and one decode engine, or stray false."
            )
        if self.oversized and self.disaggregated:
            raise UsageError(
                f"Cluster {self.name} hands over and is oversized, which kvproof does not model. "
                "Write one engine of role both, or oversized false."
            )
        if any(e.store for e in self.engines) and any(j.embeds for j in self.jobs):
            raise UsageError(
                "A job is sent as embeddings to an engine with a store, which knows prompts by "
                "their token ids. Write embeds false, or store false."
            )
        self._check_failing_store()
        self._check_sessions()
        ranked = next((j.name for j in self.jobs if j.priority), None)
        if ranked is not None and not self.by_priority:
            raise UsageError(
                f"Job {ranked} has a priority and no engine goes by it. Write policy priority for "
                "an engine, or leave the priority out."
            )
        if self.disaggregated:
            self._check_pair(self.prefill, self.decode)
        self._check_turns()
        self._check_push()

    def _check_push(self) -> None:
        if self.transfer not in TRANSFERS:
            raise unknown("transfer", self.transfer, TRANSFERS)
        if not self.pushes:
            return
        if not self.disaggregated:
            raise UsageError(
                f"Cluster {self.name} pushes and has nobody to push to. "
                "Write one prefill and one decode engine, or transfer pull."
            )
        more = any(e.overlaps or e.drafts for e in self.engines)
        if self.stray or self.resets_any_time or self.turns or more:
            raise UsageError(
                f"Cluster {self.name} pushes beside follow-up turns, stray reports, resets under "
                "load, drafts or steps that overlap, which kvproof does not model. Write it "
                "without these, or transfer pull."
            )
        if self.prefill.physical_per_logical != self.decode.physical_per_logical:
            raise UsageError(
                f"P and D of {self.name} have unequal physical_per_logical and P pushes, which "
                "kvproof does not model. Write the same number for both, or transfer pull."
            )

    def _check_failing_store(self) -> None:
        engine = self.engines[0]
        alone = len(engine.groups) == 1 and engine.groups[0].kind == "full"
        if engine.store and self.failures and not alone:
            raise UsageError(
                f"The store of {self.name} may fail beside groups other than one of full "
                "attention, where vLLM's report of the blocks means nothing. Write one full group, "
                "or failures 0."
            )

    def _check_turns(self) -> None:
        later = next((j for j in self.jobs if j.follows), None)
        if later is not None and not self.turns:
            raise UsageError(
                f"Job {later.name} follows another, and {self.name} has no turns. Write turns "
                "true, or leave follows out."
            )
        if not self.turns:
            return
        if not self.disaggregated or self.prefill.physical_per_logical != (
            self.decode.physical_per_logical
        ):
            raise UsageError(
                f"Cluster {self.name} has turns and not a P and a D with the same kernel blocks "
                "per block, which kvproof does not model. Write such a pair, or turns false."
            )
        ahead = any(e.overlaps or e.drafts for e in self.engines)
        if self.losses or self.stray or ahead:
            raise UsageError(
                f"Turns on {self.name}, with lost reads, stray reports, steps that overlap or "
                "drafts, are not modelled. Write losses and stray false, steps_in_flight 1 and "
                "drafts 0, or turns false."
            )
        for index, job in enumerate(self.jobs):
            self._check_turn(job, self.jobs[:index])

    @staticmethod
    def _check_turn(job: Job, before: tuple[Job, ...]) -> None:
        if job.embeds or job.name.endswith(BACK):
            raise UsageError(
                f"Job {job.name} is sent as embeddings, or its name ends with '{BACK}', in a "
                "cluster with turns. Write embeds false, and another name."
            )
        if not job.follows:
            return
        first = next((j for j in before if j.name == job.follows), None)
        if first is None or any(j.follows == job.follows for j in before):
            raise UsageError(
                f"Job {job.name} follows {job.follows}, which no job before it is called, or which "
                "another one follows. Write the name of an earlier job that nobody follows."
            )
        if any(a != b for a, b in zip(job.prompt, first.conversation, strict=False)):
            raise UsageError(
                f"Job {job.name} follows {first.name} and begins otherwise than its prompt and "
                "answer, which vLLM leaves to the router to see (vllm#43094). Write a prompt that "
                f"begins as {first.conversation!r} or is its beginning, or leave follows out."
            )

    def _check_sessions(self) -> None:
        parted = next((j.name for j in self.jobs if j.parts), None)
        if parted is not None and not self.sessions:
            raise UsageError(
                f"Job {parted} comes in parts, and {self.name} has no sessions. Write sessions "
                "true, or leave the parts out."
            )
        engine = self.engines[0]
        plain = engine.role == "both" and not engine.drafts and not engine.kv_events
        if self.sessions and (not plain or engine.store or engine.overlaps or engine.by_priority):
            raise UsageError(
                f"Sessions on {self.name}, with a hand-over, a store, steps that overlap, a policy "
                "of priority, a drafter or KV events, are not modelled. Write one engine without "
                "these, or sessions false."
            )

    @staticmethod
    def _check_pair(p: Engine, d: Engine) -> None:
        if [(g.kind, g.window, g.mode) for g in p.groups] != [
            (g.kind, g.window, g.mode) for g in d.groups
        ]:
            raise UsageError(
                "P and D have different cache groups. Write the same kinds, windows and modes in "
                "the same order on both."
            )
        if [g.eagle for g in p.groups] != [g.eagle for g in d.groups]:
            raise UsageError(
                "The drafter has layers in other cache groups on P than on D, which NIXL could not "
                "pair. Write eagle for the same groups on both."
            )
        for i, group in enumerate(p.groups):
            if group.attention and p.kernel_tokens(i) != d.kernel_tokens(i):
                raise UsageError(
                    f"The kernel blocks of group {i} hold {p.kernel_tokens(i)} tokens on P and "
                    f"{d.kernel_tokens(i)} on D. Write block_size / physical_per_logical equal."
                )
        if p.has_state and p.physical_per_logical != d.physical_per_logical:
            raise UsageError(
                "P and D have unequal physical_per_logical beside a Mamba group. vLLM's handshake "
                "refuses that where D caches prefixes. Write the same number for both."
            )

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


def to_json(cluster: Cluster) -> dict[str, Any]:
    """The cluster as plain data, for trace headers and `--json`."""
    return dataclasses.asdict(cluster)


def _build(cls: Callable[..., Any], what: str, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{what} is {data!r}. Write an object with named fields.")
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for field in data:
        if field not in known:
            raise unknown(f"field of {what}", field, known)
    try:
        return cls(**data)
    except TypeError as error:
        raise UsageError(f"{what} is incomplete ({error}). Write every required field.") from error


def _with_parts(job: Any) -> Any:
    """The fields of a job, with its parts as a tuple of prompts."""
    if not isinstance(job, Mapping) or "parts" not in job:
        return job
    parts = job["parts"]
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, str) for p in parts):
        raise UsageError(f"The parts of a job are {parts!r}. Write a list of prompts.")
    return {**job, "parts": tuple(parts)}


def from_json(data: Any) -> Cluster:
    """A cluster from plain data. Raises UsageError where it is impossible."""

    def many(cls: Callable[..., Any], what: str, items: Any) -> tuple[Any, ...]:
        if not isinstance(items, (list, tuple)):
            raise UsageError(f"The {what}s are {items!r}. Write a list of objects.")
        return tuple(_build(cls, what, item) for item in items)

    if not isinstance(data, Mapping) or "engines" not in data:
        raise UsageError(
            "A cluster is an object with a field engines, which this is not. "
            "Write {name, engines: [{name, groups: [{kind, block_size}]}], jobs: [...]}."
        )
    engines = []
    for item in data["engines"] if isinstance(data["engines"], (list, tuple)) else [None]:
        fields = dict(item) if isinstance(item, Mapping) else item
        if isinstance(fields, dict) and "groups" in fields:
            fields["groups"] = many(Group, "group", fields["groups"])
        engines.append(_build(Engine, "engine", fields))
    rest = {k: v for k, v in data.items() if k not in ("engines", "jobs")}
    rest.setdefault("name", "custom")
    sent = data.get("jobs", ())
    if isinstance(sent, (list, tuple)):
        sent = [_with_parts(item) for item in sent]
    jobs = many(Job, "job", sent)
    cluster: Cluster = _build(Cluster, "cluster", {**rest, "engines": tuple(engines), "jobs": jobs})
    return cluster


def parse(text: str, source: str) -> Cluster:
    """A cluster from JSON text; `source` names it in the error."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{source} is not JSON ({error.msg} at line {error.lineno}). "
            "Write one JSON object that describes a cluster."
        ) from error
    return from_json(data)
