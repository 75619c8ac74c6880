"""Rules of KV transfers that are no arithmetic of `counts`: what P and D do with blocks and
requests when a transfer or its lease ends."""

from collections.abc import Iterable
from typing import Any

from kvproof.model import config
from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.phases import Phase
from kvproof.model.state import Engine, State, Transfer


def backoff_on_prefill(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """Trailing prompt tokens P leaves to D: one where a Mamba state is transferred, since D must
    be able to compute the state of the whole prompt itself (vllm#37310). Token ids or embeddings
    make no difference."""
    return backoff_on_decode(kinds)


def backoff_on_decode(kinds: tuple[str, ...]) -> int:
    """Trailing prompt tokens D computes itself. Attention KV is read, not advanced: nothing is
    lost by loading all of it, so only a Mamba group backs off."""
    return 1 if "mamba" in kinds else 0


def connector_brings_states(cfg: config.Engine) -> bool:
    """Whether external tokens come with the states and windows at their end, so that a local hit
    before them must hold in full attention only. A store is asked about what all groups hold."""
    return not cfg.store


def longest_local_list(
    local_slots: Num, _remote_slots: Num, _local_ratio: Num, _remote_ratio: Num
) -> Num:
    """The longest list of kernel blocks that D's worker takes beside one of P's, with so many of
    them in a block. Lists of any lengths: it trims both to the slots that they have in common."""
    return local_slots


def prompt_tokens_known(prompt: int, _embeds: bool) -> int:
    """Tokens by which D counts what P offers of a prompt of so many: all of them, whether it was
    sent as token ids or as embeddings."""
    return prompt


def offered_beside_hit(offered: int, _full: int) -> int:
    """Tokens offered that D may load where full attention alone has so many cached: all of them,
    for a Mamba state must come from P even where attention lacks nothing."""
    return offered


def hit_before_load(_together: int, full: int, _alone: Iterable[int]) -> int:
    """Tokens of the local hit that a load goes on from, where all groups agree on `together`, full
    attention has `full` cached, and each group by itself has `alone`. The load brings what the
    others lack."""
    return full


def slots_kept_beside_load(_drafts: int, _ahead: int) -> int:
    """Slots beside its own blocks that must be free before a load is admitted, with so many drafts
    and so many tokens written ahead: none, for D computes nothing while it loads."""
    return 0


def tokens_sampled_by_prefill(_max_tokens: Num) -> Num:
    """Tokens that P samples of an answer of so many: one, which ends its prefill. The router asks
    P for no more (`max_tokens` 1), and D samples the answer (vllm#37310)."""
    return 1


def keeps_until_loaded(loads: Truth) -> Truth:
    """Whether a request that ends early keeps its blocks until its load has ended: where one still
    writes into them (vllm#32255)."""
    return loads


def take_repeated_report(engine: Engine, _name: str) -> Engine:
    """A connector's worker reports a transfer of this request once more, or after the request has
    gone: nothing changes."""
    return engine


def restart_after_failed_load(request: Any, failed: Any) -> Any:
    """The load of a request has failed, and it is to compute its prompt itself: the next step takes
    it up from the first token. `failed` is that status. For a `Request` and for its counts."""
    return request._replace(status=failed, computed=0)


def reported_id(name: str) -> str:
    """The request id under which D reports that it has read: the one that P knows (vllm#36958)."""
    return name


def renews_lease(reads: Truth) -> Truth:
    """Whether D renews P's lease: while it reads (vllm#41383)."""
    return reads


def frees_at_lease_end(writes: bool) -> bool:
    """Whether P frees a request's blocks when its lease ends: not while it writes them to D."""
    return not writes


def drop_registration(state: State, name: str) -> State:
    """D has waited long enough for a write that cannot come: it takes back what it registered with
    P, so that its load has failed."""
    return state.with_transfer(name, None)


def decline_push(transfer: Transfer) -> Transfer:
    """D needs nothing of a request that P may push: P is to get a report of it."""
    return transfer.to(Phase.RELEASING)


def cut_held_list(first: int, held: tuple[int, ...], end: int) -> tuple[int, tuple[int, ...]]:
    """What D keeps, as a list of kernel blocks from position `first` that ends where P's does, at
    `end`: D may have computed further. Gives the position of its first kernel block, and the list.
    """
    return first, held[: max(end - first, 0)]


def asks_for_held(already: bool) -> bool:
    """Whether P asks D for what it keeps of the turn before: once, so not where it already has."""
    return not already


def stop_running(engine: Engine, name: str) -> Engine:
    """A request leaves the running queue: no step computes another token of it."""
    return engine._replace(running=tuple(r for r in engine.running if r != name))
