"""One request's KV transfer from P to D in one cache group, in counts: the tokens that P delivers
and D loads, and the lengths and start positions of the two block lists, before and after trimming.

Lists of attention groups count kernel blocks, which hold the same number of tokens on both sides; a
Mamba list counts blocks. `projection` computes the counts of a state.

Sources: `NixlPullConnectorScheduler` (`get_num_new_matched_tokens`, `update_state_after_alloc`,
`request_finished`), `NixlBaseConnectorScheduler.get_exchange_clipped_blocks`, and the worker's
`_apply_prefix_caching`.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import (
    Num,
    Truth,
    all_of,
    any_of,
    both,
    either,
    if_,
    max_,
    min_,
    not_,
)
from kvproof.model.arithmetic.ranges import at_least, between
from kvproof.model.arithmetic.system import Action, System, where
from kvproof.model.events import LeaseExpire, TransferDone, TransferFail, TransferLost
from kvproof.model.phases import NUMBERS, Phase, Way, before, leading_to


class TransferSizes(NamedTuple):
    """The sizes that a cluster fixes: tokens of a kernel block, kernel blocks per block on P and on
    D, the window in tokens, the prompt tokens that P leaves to D, and those that D computes
    itself."""

    kernel: Num
    p_ratio: Num
    d_ratio: Num
    window: Num
    p_backoff: Num
    d_backoff: Num

    @property
    def p_block(self) -> Num:
        """Tokens of a block on P."""
        return self.kernel * self.p_ratio

    @property
    def d_block(self) -> Num:
        """Tokens of a block on D."""
        return self.kernel * self.d_ratio


class TransferCounts(NamedTuple):
    """The counts of one transfer in one group. `phase` is the number of a phase (`phases.NUMBERS`).
    `pinned`: P keeps the request's blocks (0 or 1). In tokens: `delivered` by P, and D's `hit` and
    `loaded`. In blocks: the `remote` and `local` lists before trimming. After trimming: the number
    of entries of each list, and the position of its first entry, 0 where it is empty."""

    phase: Num = NUMBERS[Phase.NONE]
    pinned: Num = 0
    submitted_prompt_tokens: Num = 0
    delivered: Num = 0
    hit: Num = 0
    loaded: Num = 0
    remote: Num = 0
    local: Num = 0
    pairs_local: Num = 0
    pairs_remote: Num = 0
    first_local: Num = 0
    first_remote: Num = 0


NO_TRANSFER = TransferCounts()


def in_phase(t: TransferCounts, phases: Iterable[Phase]) -> Truth:
    """Whether a transfer is in one of these phases."""
    return any_of(*(t.phase == number for number in sorted(NUMBERS[p] for p in phases)))


def while_in(phases: Iterable[Phase]) -> Callable[[TransferSizes, TransferCounts], Truth]:
    """The guard of an action that is possible in these phases."""
    return lambda _sizes, t: in_phase(t, phases)


def blocks_offered(kind: str, sizes: TransferSizes, delivered: Num) -> Num:
    """The number of blocks in P's list after it has delivered `delivered` tokens."""
    if kind == "mamba":
        return counts.state_slots_moved(counts.blocks_for_tokens(delivered, sizes.p_block))
    blocks = counts.attention_blocks_offered(delivered, sizes.p_block)
    if kind == "window":
        return min_(blocks, counts.window_blocks_offered(sizes.window, sizes.p_block))
    return blocks


def done(_sizes: TransferSizes, _t: TransferCounts) -> TransferCounts:
    """The transfer after it has ended: P no longer keeps the blocks (vllm#36958)."""
    return NO_TRANSFER


def renewed(t: TransferCounts) -> Truth:
    """Whether P's lease is renewed, so that it does not end: yes during a read (vllm#41383)."""
    return in_phase(t, (Phase.READING,))


def transfer_system(kind: str) -> System:
    """The system of a transfer in a group of this kind: full, window, or mamba."""

    def computed(sizes: TransferSizes, submitted_prompt_tokens: Num, max_tokens: Num) -> Num:
        """The number of tokens that P computes, without the last sampled one."""
        sampled = counts.output_tokens(max_tokens, True)
        return (
            counts.prompt_after_truncation(submitted_prompt_tokens, sizes.p_backoff, False)
            + sampled
            - 1
        )

    def may_offer(
        sizes: TransferSizes, _t: TransferCounts, submitted_prompt_tokens: Num, max_tokens: Num
    ) -> Truth:
        return computed(sizes, submitted_prompt_tokens, max_tokens) >= 1

    def offer(
        sizes: TransferSizes, _t: TransferCounts, submitted_prompt_tokens: Num, max_tokens: Num
    ) -> TransferCounts:
        delivered = computed(sizes, submitted_prompt_tokens, max_tokens)
        return NO_TRANSFER._replace(
            phase=NUMBERS[Phase.OFFERED],
            pinned=1,
            submitted_prompt_tokens=submitted_prompt_tokens,
            delivered=delivered,
            remote=blocks_offered(kind, sizes, delivered),
        )

    def fresh(sizes: TransferSizes, t: TransferCounts, hit: Num, own: Num, external: Num) -> Num:
        """The number of blocks that D takes for its load."""
        total = hit + external
        needed = (
            counts.needed_from_load(total, t.submitted_prompt_tokens) if kind == "window" else total
        )
        skipped: Num = 0
        if kind == "window":
            skipped = counts.tokens_skipped_by_window(needed, sizes.window)
        if kind == "mamba":
            skipped = counts.tokens_skipped_by_state(needed)
        left = counts.full_blocks(skipped, sizes.d_block)
        table = max_(left, counts.full_blocks(own, sizes.d_block))
        return max_(counts.blocks_for_tokens(total, sizes.d_block) - table, 0)

    def may_load(
        sizes: TransferSizes, t: TransferCounts, hit: Num, own: Num, external: Num
    ) -> Truth:
        offered_tokens = counts.tokens_loaded_by_decode(t.submitted_prompt_tokens, sizes.d_backoff)
        whole = both(
            counts.round_down(hit, sizes.d_block) == hit,
            counts.round_down(own, sizes.d_block) == own,
        )
        parts = all_of(own >= 0, own <= hit, either(kind != "full", own == hit))
        return all_of(whole, parts, external > 0, hit + external == offered_tokens)

    def load(
        sizes: TransferSizes, t: TransferCounts, hit: Num, own: Num, external: Num
    ) -> TransferCounts:
        taken = fresh(sizes, t, hit, own, external)
        t = t._replace(phase=NUMBERS[Phase.READING], hit=hit, loaded=external)
        if kind == "mamba":
            local = counts.state_slots_moved(taken)
            sent = if_(local > 0, counts.state_slots_moved(t.remote), 0)
            return t._replace(local=local, pairs_local=local, pairs_remote=sent)
        local = taken
        if kind == "window":
            local = min_(taken, counts.window_blocks_offered(sizes.window, sizes.d_block))
        length = counts.blocks_for_tokens(hit + external, sizes.d_block)
        return trimmed(sizes, t._replace(local=local), length - local)

    def trimmed(sizes: TransferSizes, t: TransferCounts, in_front: Num) -> TransferCounts:
        """The transfer with its trimmed lists; `in_front` is the number of D's blocks before its
        list."""
        ours, theirs = t.local * sizes.d_ratio, t.remote * sizes.p_ratio
        remote_blocks = counts.attention_blocks_offered(t.delivered, sizes.p_block)
        first_local = in_front * sizes.d_ratio
        first_remote = (remote_blocks - t.remote) * sizes.p_ratio
        a, b, c, d = counts.trim(
            first_local, ours, first_remote, theirs, sizes.d_ratio == sizes.p_ratio
        )
        pairs_local = max_(min_(b, ours) - a, 0)
        pairs_remote = max_(min_(d, theirs) - c, 0)
        return t._replace(
            pairs_local=pairs_local,
            pairs_remote=pairs_remote,
            first_local=if_(pairs_local > 0, first_local + a, 0),
            first_remote=if_(pairs_remote > 0, first_remote + c, 0),
        )

    def release(
        sizes: TransferSizes, t: TransferCounts, admitted: Num, length: Num
    ) -> TransferCounts:
        unpaired = t._replace(phase=NUMBERS[Phase.RELEASING])
        if kind == "mamba":
            return unpaired
        return where(admitted == 1, trimmed(sizes, unpaired, length), unpaired)

    def fail(_sizes: TransferSizes, t: TransferCounts) -> TransferCounts:
        return NO_TRANSFER._replace(
            phase=NUMBERS[Phase.ABANDONED],
            pinned=t.pinned,
            submitted_prompt_tokens=t.submitted_prompt_tokens,
            delivered=t.delivered,
            remote=t.remote,
        )

    def lose(_sizes: TransferSizes, t: TransferCounts) -> TransferCounts:
        return t._replace(phase=NUMBERS[Phase.LOST])

    def expires(_sizes: TransferSizes, t: TransferCounts) -> Truth:
        # Without a fault, the lease does not end during a read.
        leased = in_phase(t, (*before(LeaseExpire, Way.PULL), Phase.READING))
        return all_of(leased, not_(renewed(t)), t.pinned == 1)

    def expire(_sizes: TransferSizes, t: TransferCounts) -> TransferCounts:
        lost = t._replace(pinned=0, first_remote=0)
        return where(in_phase(t, (Phase.LOST, Phase.READING)), lost, NO_TRANSFER)

    return System(
        f"transfer of {kind}",
        lambda _sizes: NO_TRANSFER,
        (
            Action(
                "offer",
                while_in(leading_to(Phase.OFFERED, Way.PULL)),
                offer,
                lambda _s: {"submitted_prompt_tokens": at_least(1), "max_tokens": at_least(1)},
                may_offer,
            ),
            Action(
                "load",
                while_in(leading_to(Phase.READING, Way.PULL)),
                load,
                lambda _s: {"hit": at_least(0), "own": at_least(0), "external": at_least(1)},
                may_load,
            ),
            Action(
                "release",
                while_in(leading_to(Phase.RELEASING, Way.PULL)),
                release,
                lambda _s: {"admitted": between(0, 1), "length": at_least(0)},
            ),
            Action("done", while_in(before(TransferDone, Way.PULL)), done),
            Action("fail", while_in(before(TransferFail, Way.PULL)), fail),
            Action("lose", while_in(before(TransferLost, Way.PULL)), lose),
            Action("expire", expires, expire),
        ),
    )
