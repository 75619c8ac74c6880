"""The claims about a block table's counts, for all sizes. Together they are inductive.

The claims state the spec, whatever rules a system follows: a faulty system must violate them.
"""

from collections.abc import Callable, Mapping

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    any_of,
    both,
    div,
    either,
    if_,
    implies,
    max_,
    min_,
)
from kvproof.model.counting_abstraction.table import (
    ABORTED,
    GONE,
    GONE_TABLE,
    LOADED,
    LOADING,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    TableCounts,
    TableSizes,
)
from kvproof.model.counting_abstraction.transfer_claims import agreed_tokens

Claim = Callable[[TableSizes, TableCounts], Truth]


def sizes_allowed(kind: str, sizes: TableSizes) -> Truth:
    """The possible sizes. P leaves at most one prompt token to D, and exactly one where a Mamba
    state is transferred (vllm#37310). With a Mamba group that caches nothing, the engine caches
    nothing."""
    flags = (sizes.backoff, sizes.caching, sizes.connected, sizes.sends, sizes.recomputes)
    return all_of(
        sizes.block_size >= 1,
        sizes.units >= 1,
        sizes.window >= 1,
        sizes.chunk >= sizes.shared_chunk,
        sizes.shared_chunk >= 1,
        sizes.max_tokens >= 1,
        *(both(flag >= 0, flag <= 1) for flag in flags),
        implies(sizes.sends == 1, sizes.connected == 1),
        either(kind != "state", sizes.caching == 0),
        either(kind not in ("mamba", "state"), sizes.backoff == sizes.connected),
    )


def counts_are_none_when_gone(_sizes: TableSizes, t: TableCounts) -> Truth:
    """A removed request has no counts; a present request has at least one prompt token."""
    nothing = all_of(*(a == b for a, b in zip(t, GONE_TABLE, strict=True)))
    there = all_of(
        t.status > GONE, t.status <= ABORTED, t.submitted_prompt_tokens >= 1, t.prompt >= 1
    )
    sound = all_of(*(n >= 0 for n in t))
    return both(sound, either(nothing, there))


def truncated_once(sizes: TableSizes, t: TableCounts) -> Truth:
    """P truncates a prompt exactly once, however often the request is preempted."""
    kept = agreed_tokens(t.submitted_prompt_tokens, sizes.backoff)
    wanted = if_(sizes.sends == 1, kept, t.submitted_prompt_tokens)
    return either(t.status == GONE, t.prompt == wanted)


def computes_known_tokens(sizes: TableSizes, t: TableCounts) -> Truth:
    """No more tokens are computed than are known, no more are sampled than requested, and P samples
    no token before the end."""
    return all_of(
        t.computed <= t.known,
        t.hit + t.external <= t.known,
        implies(sizes.sends == 1, either(t.out == 0, t.status == SENDING)),
        implies(sizes.sends == 0, t.out < sizes.max_tokens),
    )


def loads_what_is_offered(sizes: TableSizes, t: TableCounts) -> Truth:
    """D's local hit and its load are together exactly what P delivered."""
    offered = agreed_tokens(t.prompt, sizes.backoff)
    connected = both(sizes.connected == 1, sizes.sends == 0)
    return implies(t.external > 0, all_of(connected, t.hit + t.external == offered))


def loads_all_or_nothing(_sizes: TableSizes, t: TableCounts) -> Truth:
    """During a load, and after it, all its tokens count as computed."""
    whole = t.computed == t.hit + t.external
    loads = any_of(t.status == LOADING, t.status == LOADED, t.status == ABORTED)
    return implies(loads, both(whole, t.external > 0))


def no_blocks_without_tokens(_sizes: TableSizes, t: TableCounts) -> Truth:
    """A request without blocks has no computed tokens and no cached blocks."""
    none = all_of(
        t.computed == 0, t.hit == 0, t.external == 0, t.num_cached_blocks == 0, t.null == 0
    )
    return implies(t.length == 0, none)


def table_fits_its_tokens(sizes: TableSizes, t: TableCounts) -> Truth:
    """A table has exactly the blocks its tokens need."""
    return t.length == counts.blocks_for_tokens(t.reach, sizes.block_size)


def counter_counts_full_blocks(sizes: TableSizes, t: TableCounts) -> Truth:
    """The cached counter counts only full blocks, during a load only blocks of the local hit, and
    nothing where prefix caching is off."""
    loads = any_of(t.status == LOADING, t.status == LOADED)
    return all_of(
        t.num_cached_blocks * sizes.block_size <= t.reach,
        implies(loads, t.num_cached_blocks * sizes.block_size <= t.hit),
        implies(sizes.caching == 0, t.num_cached_blocks == 0),
    )


def hashed_are_counted(_sizes: TableSizes, t: TableCounts) -> Truth:
    """Hashed entries are real blocks, and the cached counter counts them."""
    return all_of(
        t.null <= t.length, t.hashed <= t.length - t.null, t.hashed <= t.num_cached_blocks
    )


def unneeded(kind: str, sizes: TableSizes, computed: Num) -> Num:
    """Leading blocks that nothing reads after `computed` tokens: those in front of the window, or
    of the running state."""
    behind = {"full": 0, "window": computed - sizes.window + 1}.get(kind, computed - 1)
    return div(max_(behind, 0), sizes.block_size)


def table_claims(kind: str) -> Mapping[str, Claim]:
    """The claims about a table in a group of this kind, by name."""

    def null_is_not_needed(sizes: TableSizes, t: TableCounts) -> Truth:
        """Null entries are only at positions that the next token does not need. For a load this is
        the token at which the request will resume."""
        loads = any_of(t.status == LOADING, t.status == LOADED)
        runs = any_of(*(t.status == s for s in (WAITING, RUNNING, PREEMPTED)))
        resumed = min_(t.reach, t.prompt - 1) if kind == "window" else t.reach
        return both(
            implies(loads, t.null <= unneeded(kind, sizes, resumed)),
            implies(runs, t.null <= unneeded(kind, sizes, t.computed)),
        )

    def full_attention_keeps_all(sizes: TableSizes, t: TableCounts) -> Truth:
        """No entry is null, and all counted blocks are hashed."""
        return both(t.null == 0, implies(sizes.caching == 1, t.hashed == t.num_cached_blocks))

    def state_is_there(_sizes: TableSizes, t: TableCounts) -> Truth:
        """A table with entries has at least one real entry: the running state."""
        return implies(t.length > 0, t.null < t.length)

    def delivered_is_counted(sizes: TableSizes, t: TableCounts) -> Truth:
        """When P offers its blocks, it has computed what D will load."""
        loaded = agreed_tokens(t.submitted_prompt_tokens, sizes.backoff)
        return implies(t.status == SENDING, t.computed == loaded)

    own: dict[str, Claim] = {}
    if kind != "state":  # a state group caches nothing
        own["hashed_are_counted"] = hashed_are_counted
    if kind == "full":
        own["full_attention_keeps_all"] = full_attention_keeps_all
    else:
        own["null_is_not_needed"] = null_is_not_needed
    if kind in ("mamba", "state"):
        own["state_is_there"] = state_is_there
    shared = (
        counts_are_none_when_gone,
        truncated_once,
        computes_known_tokens,
        loads_what_is_offered,
        loads_all_or_nothing,
        no_blocks_without_tokens,
        table_fits_its_tokens,
        counter_counts_full_blocks,
        delivered_is_counted,
    )
    return {**{claim.__name__: claim for claim in shared}, **own}
