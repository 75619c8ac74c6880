"""One request's hand-over from P to D in one cache group, in counts: what P delivers, what D loads,
and how long the two block lists are and where they start, before and after trimming.

Lists of attention groups count kernel blocks, which hold the same number of tokens on both sides; a
Mamba list counts blocks. `project` reads the counts off a state.

Sources: `NixlPullConnectorScheduler` (`get_num_new_matched_tokens`, `update_state_after_alloc`,
`request_finished`), `NixlBaseConnectorScheduler.get_exchange_clipped_blocks`, and the worker's
`_apply_prefix_caching`.
"""

from collections.abc import Callable
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
from kvproof.model.arithmetic.system import Action, System
from kvproof.model.reference.rules import Rules

NONE, OFFERED, READING, TELLING, ABANDONED, LOST = range(6)


class Sizes(NamedTuple):
    """What a cluster fixes: tokens of a kernel block, kernel blocks of a block on P and on D, the
    window, and the prompt tokens that P leaves to D, and that D computes itself."""

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


class Handover(NamedTuple):
    """The counts. `pinned`: P keeps the request's blocks (0 or 1). Tokens: those `delivered` by P,
    and D's `hit` and `loaded`. Blocks: `remote` and `local` lists before trimming. After it: the
    entries of each side, and the positions of the first ones, 0 where there are none."""

    phase: Num = NONE
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


NO_HANDOVER = Handover()

REQUEST = "the request"
"""The id under which P knows the one request that is counted."""


def blocks_offered(kind: str, rules: Rules, sizes: Sizes, delivered: Num) -> Num:
    """Blocks of the list P offers after it has delivered so many tokens."""
    if kind == "mamba":
        return rules.state_slots_moved(counts.blocks_for_tokens(delivered, sizes.p_block))
    blocks = rules.attention_blocks_offered(delivered, sizes.p_block)
    if kind == "window":
        return min_(blocks, rules.window_blocks_offered(sizes.window, sizes.p_block))
    return blocks


def handover_system(kind: str, rules: Rules) -> System:
    """The system of a hand-over in a group of this kind: full, window, or mamba."""

    def computed(sizes: Sizes, submitted_prompt_tokens: Num, max_tokens: Num) -> Num:
        """Tokens that P computes; the last one it samples is not among them."""
        sampled = rules.tokens_sampled_by_prefill(max_tokens)
        return (
            rules.prompt_after_truncation(submitted_prompt_tokens, sizes.p_backoff, False)
            + sampled
            - 1
        )

    def may_offer(
        sizes: Sizes, _h: Handover, submitted_prompt_tokens: Num, max_tokens: Num
    ) -> Truth:
        return computed(sizes, submitted_prompt_tokens, max_tokens) >= 1

    def offer(
        sizes: Sizes, _h: Handover, submitted_prompt_tokens: Num, max_tokens: Num
    ) -> Handover:
        delivered = computed(sizes, submitted_prompt_tokens, max_tokens)
        return NO_HANDOVER._replace(
            phase=OFFERED,
            pinned=1,
            submitted_prompt_tokens=submitted_prompt_tokens,
            delivered=delivered,
            remote=blocks_offered(kind, rules, sizes, delivered),
        )

    def fresh(sizes: Sizes, h: Handover, hit: Num, own: Num, external: Num) -> Num:
        """Blocks D takes for what it loads."""
        total = hit + external
        needed = (
            rules.needed_from_load(total, h.submitted_prompt_tokens) if kind == "window" else total
        )
        skipped: Num = 0
        if kind == "window":
            skipped = rules.tokens_skipped_by_window(needed, sizes.window)
        if kind == "mamba":
            skipped = rules.tokens_skipped_by_state(needed)
        left = counts.full_blocks(skipped, sizes.d_block)
        table = max_(left, counts.full_blocks(own, sizes.d_block))
        return max_(counts.blocks_for_tokens(total, sizes.d_block) - table, 0)

    def may_load(sizes: Sizes, h: Handover, hit: Num, own: Num, external: Num) -> Truth:
        offered_tokens = rules.tokens_loaded_by_decode(h.submitted_prompt_tokens, sizes.d_backoff)
        whole = both(
            counts.round_down(hit, sizes.d_block) == hit,
            counts.round_down(own, sizes.d_block) == own,
        )
        parts = all_of(own >= 0, own <= hit, either(kind != "full", own == hit))
        return all_of(whole, parts, external > 0, hit + external == offered_tokens)

    def load(sizes: Sizes, h: Handover, hit: Num, own: Num, external: Num) -> Handover:
        taken = fresh(sizes, h, hit, own, external)
        h = h._replace(phase=READING, hit=hit, loaded=external)
        if kind == "mamba":
            local = rules.state_slots_moved(taken)
            sent = if_(local > 0, rules.state_slots_moved(h.remote), 0)
            return h._replace(local=local, pairs_local=local, pairs_remote=sent)
        local = taken
        if kind == "window":
            local = min_(taken, rules.window_blocks_offered(sizes.window, sizes.d_block))
        length = counts.blocks_for_tokens(hit + external, sizes.d_block)
        return trimmed(sizes, h._replace(local=local), length - local)

    def trimmed(sizes: Sizes, h: Handover, before: Num) -> Handover:
        """With what a transfer pairs; `before` counts D's blocks in front of its list."""
        ours, theirs = h.local * sizes.d_ratio, h.remote * sizes.p_ratio
        remote_blocks = rules.attention_blocks_offered(h.delivered, sizes.p_block)
        first_local = before * sizes.d_ratio
        first_remote = (remote_blocks - h.remote) * sizes.p_ratio
        a, b, c, d = rules.trim(
            first_local, ours, first_remote, theirs, sizes.d_ratio == sizes.p_ratio
        )
        pairs_local = max_(min_(b, ours) - a, 0)
        pairs_remote = max_(min_(d, theirs) - c, 0)
        return h._replace(
            pairs_local=pairs_local,
            pairs_remote=pairs_remote,
            first_local=if_(pairs_local > 0, first_local + a, 0),
            first_remote=if_(pairs_remote > 0, first_remote + c, 0),
        )

    def tell(sizes: Sizes, h: Handover, admitted: Num, length: Num) -> Handover:
        told = h._replace(phase=TELLING)
        if kind == "mamba":
            return told
        paired = trimmed(sizes, told, length)
        return Handover(*(if_(admitted == 1, a, b) for a, b in zip(paired, told, strict=True)))

    def unread(h: Handover, phase: Num) -> Handover:
        return NO_HANDOVER._replace(
            phase=phase,
            pinned=h.pinned,
            submitted_prompt_tokens=h.submitted_prompt_tokens,
            delivered=h.delivered,
            remote=h.remote,
        )

    def phase(*phases: int) -> Callable[[Sizes, Handover], Truth]:
        return lambda _s, h: any_of(*(h.phase == p for p in phases))

    def done(_sizes: Sizes, h: Handover) -> Handover:
        found = rules.reported_id(REQUEST) == REQUEST
        return NO_HANDOVER._replace(pinned=0 if found else h.pinned)

    def expires(_sizes: Sizes, h: Handover) -> Truth:
        leased = any_of(*(h.phase == p for p in (OFFERED, ABANDONED, LOST, READING)))
        renewed = rules.renews_lease(h.phase == READING)
        return all_of(leased, not_(renewed), h.pinned == 1)

    def expire(_sizes: Sizes, h: Handover) -> Handover:
        lost = h._replace(pinned=0, first_remote=0)
        read = either(h.phase == LOST, h.phase == READING)
        return Handover(*(if_(read, a, b) for a, b in zip(lost, NO_HANDOVER, strict=True)))

    return System(
        f"handover of {kind}",
        lambda _sizes: NO_HANDOVER,
        lambda _sizes: Handover(*(at_least(0) for _ in Handover._fields)),
        (
            Action(
                "offer",
                phase(NONE),
                offer,
                lambda _s: {"submitted_prompt_tokens": at_least(1), "max_tokens": at_least(1)},
                may_offer,
            ),
            Action(
                "load",
                phase(OFFERED),
                load,
                lambda _s: {"hit": at_least(0), "own": at_least(0), "external": at_least(1)},
                may_load,
            ),
            Action(
                "tell",
                phase(OFFERED),
                tell,
                lambda _s: {"admitted": between(0, 1), "length": at_least(0)},
            ),
            Action("done", phase(READING, TELLING), done),
            Action("fail", phase(READING), lambda _s, h: unread(h, ABANDONED)),
            Action("lose", phase(READING), lambda _s, h: h._replace(phase=LOST)),
            Action("expire", expires, expire),
        ),
    )
