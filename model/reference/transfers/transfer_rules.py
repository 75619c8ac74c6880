"""Rules of KV transfers that are not arithmetic in `counts`: what P and D do with blocks and
requests when a transfer or its lease ends."""

from collections.abc import Iterable
from typing import Any

from kvproof.model import config
from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.phases import Phase
from kvproof.model.state import Engine, State, Transfer


def backoff_on_prefill(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """The number of last prompt tokens that P leaves to D: 1 where a Mamba state is transferred,
    because D must compute the state of the whole prompt itself (vllm#37310). Token ids and
    embeddings are treated alike."""
    return backoff_on_decode(kinds)


def backoff_on_decode(kinds: tuple[str, ...]) -> int:
    """The number of last prompt tokens that D computes itself. D can load the attention KV of the
    whole prompt, because it is only read; only a Mamba group needs the backoff."""
    return 1 if "mamba" in kinds else 0


def connector_brings_states(cfg: config.Engine) -> bool:
    """Whether external tokens come with the states and windows at their end. Then a local hit
    before them must hold only in full attention. With a store, the hit must hold in all groups."""
    return not cfg.store


def longest_local_list(
    local_slots: Num, _remote_slots: Num, _local_ratio: Num, _remote_ratio: Num
) -> Num:
    """The longest list of kernel blocks that D's worker accepts together with P's list, for these
    numbers of kernel blocks per block. It accepts lists of any length and trims both to their
    common slots."""
    return local_slots


def prompt_tokens_known(prompt: int, _embeds: bool) -> int:
    """The prompt length, in tokens, from which D computes P's offer: the whole prompt, sent as
    token ids or as embeddings."""
    return prompt


def offered_beside_hit(offered: int, _full: int) -> int:
    """The number of offered tokens that D may load where full attention has `_full` tokens cached:
    all of them, because a Mamba state must come from P even where attention lacks no block."""
    return offered


def hit_before_load(_together: int, full: int, _alone: Iterable[int]) -> int:
    """The number of tokens of the local hit before a load. All groups together have `_together`,
    full attention has `full`, each group by itself has `_alone`. The load provides what the other
    groups lack."""
    return full


def slots_kept_beside_load(_drafts: int, _ahead: int) -> int:
    """The number of slots outside its own blocks that must be free before a load is admitted: none,
    because D computes nothing during a load."""
    return 0


def tokens_sampled_by_prefill(_max_tokens: Num) -> Num:
    """The number of tokens that P samples: one, which ends its prefill. The router sends P
    `max_tokens` 1, and D samples the answer (vllm#37310)."""
    return 1


def keeps_until_loaded(loads: Truth) -> Truth:
    """Whether a request that ends early keeps its blocks until its load has ended: yes where a load
    still writes to them (vllm#32255)."""
    return loads


def take_repeated_report(engine: Engine, _name: str) -> Engine:
    """A connector's worker reports a transfer of this request a second time, or after the request
    was removed: nothing changes."""
    return engine


def restart_after_failed_load(request: Any, failed: Any) -> Any:
    """A request whose load failed and that will compute its prompt itself: the next step starts at
    the first token. `failed` is the status FAILED. Works on a `Request` and on its counts."""
    return request._replace(status=failed, computed=0)


def reported_id(name: str) -> str:
    """The request id in D's report of a finished read: the id that P knows (vllm#36958)."""
    return name


def renews_lease(reads: Truth) -> Truth:
    """Whether D renews P's lease: yes during a read (vllm#41383)."""
    return reads


def frees_at_lease_end(writes: bool) -> bool:
    """Whether P frees a request's blocks when its lease ends: yes, unless P is writing them to
    D."""
    return not writes


def drop_registration(state: State, name: str) -> State:
    """D's deadline for a write has ended: D withdraws its registration from P, and its load has
    failed."""
    return state.with_transfer(name, None)


def decline_push(transfer: Transfer) -> Transfer:
    """D needs no blocks of a request that P may push: D will notify P."""
    return transfer.to(Phase.RELEASING)


def cut_held_list(first: int, held: tuple[int, ...], end: int) -> tuple[int, tuple[int, ...]]:
    """D's kept kernel blocks from position `first`, cut at position `end`, where P's list ends,
    because D may have computed more tokens. Returns the position of the first kernel block, and the
    list.
    """
    return first, held[: max(end - first, 0)]


def asks_for_held(already: bool) -> bool:
    """Whether P requests the blocks that D keeps of the turn before: only once, so not where it
    already has."""
    return not already


def stop_running(engine: Engine, name: str) -> Engine:
    """Remove a request from the running queue: no later step computes its tokens."""
    return engine._replace(running=tuple(r for r in engine.running if r != name))
