"""One request's block table in one cache group, in counts.

Parametric in every size; the kind of the group is fixed. Positions and identities are gone, so a
count says how many, and the model says which. `project` reads the counts off a state.

Sources: `Scheduler.schedule`, `KVCacheManager.allocate_slots`, `SingleTypeKVCacheManager` and its
subclasses, `NixlConnectorScheduler` of vLLM V1.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kvproof.model import counts
from kvproof.model.algebra import (
    Num,
    Truth,
    all_of,
    any_of,
    both,
    either,
    if_,
    implies,
    max_,
    min_,
    not_,
)
from kvproof.model.ranges import Range, at_least, between
from kvproof.model.rules import Rules
from kvproof.model.system import Action, System

GONE, WAITING, RUNNING, PREEMPTED, LOADING, LOADED, FAILED, SENDING, ABORTED = range(9)
NONE = 0
"""No tokens, no blocks."""


class Sizes(NamedTuple):
    """What a cluster fixes. Tokens: block size, chunk, window; `units` blocks make a hit unit.
    The last four are 0 or 1: the engine caches prefixes, has a connector, is P, and recomputes
    what could not be loaded."""

    block_size: Num
    units: Num
    window: Num
    backoff: Num
    chunk: Num
    max_tokens: Num
    caching: Num
    connected: Num
    sends: Num
    recomputes: Num

    @property
    def hit_unit(self) -> Num:
        """Prefix hits are multiples of this many tokens."""
        return self.units * self.block_size


class Table(NamedTuple):
    """The counts. Tokens: `asked` of the prompt as sent, `prompt` as kept, `out` sampled,
    `computed`; `hit` in the cache and `external` from the connector at the last admission;
    `junction` to stop at.
    Blocks: `length` of the table, `null` and `hashed` entries of it, and the cached counter."""

    status: Num = GONE
    asked: Num = NONE
    prompt: Num = NONE
    out: Num = NONE
    computed: Num = NONE
    hit: Num = NONE
    external: Num = NONE
    junction: Num = NONE
    length: Num = NONE
    null: Num = NONE
    hashed: Num = NONE
    counted: Num = NONE

    @property
    def known(self) -> Num:
        """Prompt and output tokens."""
        return self.prompt + self.out

    @property
    def reach(self) -> Num:
        """Tokens the table has blocks for."""
        return max_(self.computed, self.hit + self.external)

    def among(self, *statuses: int) -> Truth:
        """Whether the status is one of these."""
        return any_of(*(self.status == s for s in statuses))

    def emptied(self, status: Num) -> "Table":
        """Without blocks and progress."""
        return Table(status, self.asked, self.prompt, self.out)


GONE_TABLE = Table()


def where(condition: Truth, then: Table, otherwise: Table) -> Table:
    """One of two tables."""
    return Table(*(if_(condition, a, b) for a, b in zip(then, otherwise, strict=True)))


class Group:
    """What one kind of group does, by the rules."""

    def __init__(self, kind: str, rules: Rules) -> None:
        self.kind, self.rules = kind, rules

    def skipped(self, sizes: Sizes, computed: Num) -> Num:
        """Leading blocks no longer needed after `computed` tokens."""
        tokens: Num = 0
        if self.kind == "window":
            tokens = counts.tokens_skipped_by_window(computed, sizes.window)
        if self.kind in ("mamba", "state"):
            tokens = counts.tokens_skipped_by_state(computed)
        return counts.full_blocks(tokens, sizes.block_size)

    def null_in_hit(self, sizes: Sizes, blocks: Num) -> Num:
        """Null entries of the table that a hit of so many blocks begins with."""
        if self.kind == "window":
            need = counts.window_blocks_for_hit(sizes.window, sizes.block_size)
            return max_(blocks - need, 0)
        return max_(blocks - 1, 0) if self.kind == "mamba" else 0

    def released(self, sizes: Sizes, table: Table, computed: Num) -> Table:
        """After the blocks that `computed` tokens leave behind are let go. Those of a state are all
        in front of it; a hashed one may be among them (`hashed` is settled by `hashing`)."""
        behind = min_(self.skipped(sizes, computed), table.length)
        return table._replace(null=max_(table.null, behind))

    def grown(self, sizes: Sizes, table: Table, end: Num) -> Table:
        """After blocks were taken to reach `end` tokens."""
        if self.kind != "mamba":
            taken = counts.attention_blocks_predicted(end, sizes.block_size, table.length, 0)
            return table._replace(length=table.length + taken)
        taken = counts.state_blocks_predicted(end, sizes.block_size, table.length)
        blocks = counts.blocks_for_tokens(end, sizes.block_size)
        padding = if_(taken > 0, max_(blocks - 1 - table.length, 0), 0)
        return table._replace(length=table.length + padding + taken, null=table.null + padding)

    def counting(self, sizes: Sizes, table: Table, upto: Num) -> Table:
        """After the full blocks of the first `upto` tokens were cached."""
        cacheable = counts.round_down(upto, sizes.hit_unit)
        counted = max_(table.counted, counts.full_blocks(cacheable, sizes.block_size))
        return table._replace(counted=if_(sizes.caching == 1, counted, table.counted))

    def hashing(self, sizes: Sizes, table: Table, hashed: Num) -> Table:
        """With so many hashed entries. Full attention hashes what it counts; of the others, counts
        alone do not tell which blocks are kept, only how many there can be."""
        exact = if_(sizes.caching == 1, table.counted, 0)
        return table._replace(hashed=exact if self.kind == "full" else hashed)

    def may_hash(self, table: Table, hashed: Num) -> Truth:
        """Whether so many entries of a table may be hashed."""
        return all_of(hashed >= 0, hashed <= table.length - table.null, hashed <= table.counted)


def table_system(kind: str, rules: Rules) -> System:
    """The system of a request's table in a group of this kind: full, window, mamba (its states are
    cached at block boundaries) or state (a Mamba group that caches nothing)."""
    group = Group(kind, rules)

    def asked_again(sizes: Sizes, t: Table) -> Num:
        again = rules.prompt_after_truncation(t.prompt, sizes.backoff, t.prompt < t.asked)
        return if_(both(sizes.sends == 1, t.status == PREEMPTED), again, t.prompt)

    def submit(sizes: Sizes, _t: Table, asked: Num) -> Table:
        kept = rules.prompt_after_truncation(asked, sizes.backoff, False)
        return GONE_TABLE._replace(
            status=WAITING, asked=asked, prompt=if_(sizes.sends == 1, kept, asked)
        )

    def may_admit(
        sizes: Sizes, t: Table, units: Num, own: Num, external: Num, junction: Num, hashed: Num
    ) -> Truth:
        prompt = asked_again(sizes, t)
        hit = units * sizes.hit_unit
        parts = all_of(
            units >= 0,
            hit < prompt + t.out,
            own >= 0,
            own <= units * sizes.units,
            either(own == units * sizes.units, external > 0),
            implies(sizes.caching == 0, hit == 0),
        )
        offered = rules.tokens_loaded_by_decode(prompt, sizes.backoff)
        connected = both(sizes.connected == 1, sizes.sends == 0)
        loads = both(
            both(external >= 0, junction >= 0),
            implies(external > 0, both(connected, hit + external == offered)),
        )
        after = admit(sizes, t, units, own, external, junction, hashed)
        return all_of(parts, loads, group.may_hash(after, hashed))

    def admit(
        sizes: Sizes, t: Table, units: Num, own: Num, external: Num, junction: Num, hashed: Num
    ) -> Table:
        """A hit of so many units, of which the group has `own` blocks itself, and a load."""
        prompt = asked_again(sizes, t)
        hit = units * sizes.hit_unit
        total = hit + external
        needed = rules.needed_from_load(total, prompt) if kind == "window" else total
        left = group.skipped(sizes, if_(external > 0, needed, total))
        table = Table(
            status=if_(external > 0, LOADING, t.status),
            asked=t.asked,
            prompt=prompt,
            out=t.out,
            computed=total,
            hit=hit,
            external=external,
            junction=junction,
            length=max_(left, own),
            null=max_(left, group.null_in_hit(sizes, own)),
            counted=rules.counted_after_hit(own, left),
        )
        missing = counts.blocks_for_tokens(total, sizes.block_size) - table.length
        table = table._replace(length=table.length + if_(external > 0, max_(missing, 0), 0))
        held = max_(own - table.null, 0)
        return table._replace(hashed=held if kind == "full" else hashed)

    def may_compute(sizes: Sizes, t: Table, tokens: Num, hashed: Num) -> Truth:
        fits = all_of(tokens > 0, tokens <= t.known - t.computed, tokens <= sizes.chunk)
        return both(fits, group.may_hash(compute(sizes, t, tokens, hashed), hashed))

    def is_chosen(sizes: Sizes, t: Table, tokens: Num, _hashed: Num) -> Truth:
        if kind != "mamba":
            return True
        split = rules.align_chunk(
            t.computed,
            tokens,
            max_(t.prompt, t.known - 1),
            t.known,
            sizes.block_size,
            sizes.chunk,
            t.junction,
        )
        return split == tokens

    def compute(sizes: Sizes, t: Table, tokens: Num, hashed: Num) -> Table:
        end = t.computed + tokens
        table = group.grown(sizes, group.released(sizes, t, t.computed), end)
        table = group.counting(sizes, table, end)._replace(status=RUNNING, computed=end)
        return group.hashing(sizes, table, hashed)

    def release(sizes: Sizes, t: Table, hashed: Num) -> Table:
        return group.hashing(sizes, group.released(sizes, t, t.computed), hashed)

    def may_release(sizes: Sizes, t: Table, hashed: Num) -> Truth:
        return group.may_hash(release(sizes, t, hashed), hashed)

    def sample(sizes: Sizes, t: Table, hashed: Num) -> Table:
        longer = t._replace(out=t.out + 1)
        ends = longer.out >= sizes.max_tokens
        # A finished request that P keeps for D lets go of what D does not need.
        needed = rules.needed_from_load(t.computed, t.asked)
        kept = group.released(sizes, longer._replace(status=SENDING), needed)
        kept = group.hashing(sizes, kept, hashed)
        return where(
            ends, where(sizes.sends == 1, kept, GONE_TABLE), longer._replace(hashed=hashed)
        )

    def may_sample(sizes: Sizes, t: Table, hashed: Num) -> Truth:
        stays = t.out + 1 < sizes.max_tokens
        after = sample(sizes, t, hashed)
        return if_(stays, hashed == t.hashed, group.may_hash(after, after.hashed))

    def adopt(sizes: Sizes, t: Table, preempted: Num, hashed: Num) -> Table:
        status = if_(preempted == 1, PREEMPTED, WAITING)
        taken = group.hashing(sizes, group.counting(sizes, t, t.computed), hashed)
        taken = taken._replace(status=status, computed=counts.resumed_at(t.computed, t.known))
        return where(t.status == FAILED, t.emptied(WAITING), taken)

    def may_adopt(sizes: Sizes, t: Table, _preempted: Num, hashed: Num) -> Truth:
        taken = group.counting(sizes, t, t.computed)
        return either(t.status == FAILED, group.may_hash(taken, hashed))

    def failed(sizes: Sizes, t: Table) -> Table:
        again = both(t.status == LOADING, sizes.recomputes == 1)
        return where(again, t._replace(status=FAILED, computed=0), GONE_TABLE)

    def abort(sizes: Sizes, t: Table, hashed: Num) -> Table:
        kept = group.released(sizes, t._replace(status=ABORTED), t.computed)
        stays = both(t.status == LOADING, not_(rules.frees_while_loading()))
        kept = kept._replace(hashed=t.hashed if kind == "full" else hashed)
        return where(stays, kept, GONE_TABLE)

    def may_abort(sizes: Sizes, t: Table, hashed: Num) -> Truth:
        after = abort(sizes, t, hashed)
        return either(t.status != LOADING, group.may_hash(after, hashed))

    hashes = {"hashed": at_least(0)}

    def choosing(**ranges: Range) -> Mapping[str, Range]:
        return {**ranges, **hashes}

    def empty(_sizes: Sizes, t: Table) -> Truth:
        return both(t.among(WAITING, PREEMPTED), t.length == 0)

    return System(
        kind,
        lambda _sizes: GONE_TABLE,
        lambda _sizes: Table(*(at_least(0) for _ in Table._fields)),
        (
            Action(
                "submit",
                lambda _s, t: t.status == GONE,
                submit,
                lambda _s: {"asked": at_least(1)},
            ),
            Action(
                "admit",
                empty,
                admit,
                lambda _s: choosing(
                    units=at_least(0), own=at_least(0), external=at_least(0), junction=at_least(0)
                ),
                may_admit,
            ),
            Action(
                "compute",
                lambda _s, t: t.among(WAITING, RUNNING, PREEMPTED),
                compute,
                lambda _s: choosing(tokens=at_least(1)),
                may_compute,
                is_chosen,
            ),
            Action(
                "release",
                lambda _s, t: t.status == RUNNING,
                release,
                lambda _s: choosing(),
                may_release,
            ),
            Action(
                "sample",
                lambda _s, t: both(t.status == RUNNING, t.computed >= t.known),
                sample,
                lambda _s: choosing(),
                may_sample,
            ),
            Action(
                "preempt", lambda _s, t: t.status == RUNNING, lambda _s, t: t.emptied(PREEMPTED)
            ),
            Action(
                "loaded",
                lambda _s, t: t.status == LOADING,
                lambda _s, t: t._replace(status=LOADED),
            ),
            Action("failed", lambda _s, t: t.among(LOADING, ABORTED), failed),
            Action(
                "adopt",
                lambda _s, t: t.among(LOADED, FAILED),
                adopt,
                lambda _s: choosing(preempted=between(0, 1)),
                may_adopt,
            ),
            Action(
                "abort",
                lambda _s, t: t.among(WAITING, RUNNING, PREEMPTED, LOADING, LOADED, FAILED),
                abort,
                lambda _s: choosing(),
                may_abort,
            ),
            Action(
                "leave",
                lambda _s, t: t.among(SENDING, ABORTED),
                lambda _s, _t: GONE_TABLE,
            ),
        ),
    )
