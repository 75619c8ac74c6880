"""How each event changes the counts of a block table (see `table`): one action for each event.

Where the counts do not determine the result, the action has a choice: how many blocks of a hit the
group has itself (`own`), how many entries are hashed afterwards (`hashed`).

Sources: `Scheduler.schedule`, `KVCacheManager.allocate_slots`, `SingleTypeKVCacheManager` and its
subclasses, `NixlConnectorScheduler` of vLLM V1.
"""

from collections.abc import Mapping

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, all_of, both, either, if_, implies, max_
from kvproof.model.arithmetic.ranges import Range, at_least, between
from kvproof.model.arithmetic.system import Action, System, where
from kvproof.model.counting_abstraction.table import (
    ABORTED,
    FAILED,
    GONE,
    GONE_TABLE,
    LOADED,
    LOADING,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    GroupTable,
    TableCounts,
    TableSizes,
)


def may_lack(kind: str, held: Num, lacking: Num) -> Truth:  # noqa: ARG001
    """Whether a hit may lack this many of the `held` blocks of a group: none, because a hit holds
    in every group."""
    return lacking == 0


def preempted(_sizes: TableSizes, t: TableCounts) -> TableCounts:
    """A request after its preemption: it starts over."""
    return t.emptied(PREEMPTED)


def restarted(t: TableCounts) -> TableCounts:
    """A request whose load failed and that will compute its prompt itself: the next step starts at
    the first token."""
    return t._replace(status=FAILED, computed=0)


def keeps_its_blocks(t: TableCounts) -> Truth:
    """Whether an aborted request keeps its blocks until its load has ended: yes where a load still
    writes to them (vllm#32255)."""
    return t.status == LOADING


def table_system(kind: str) -> System:
    """The system of a request's table in a group of this kind: full, window, mamba (its states are
    cached at block boundaries) or state (a Mamba group that caches nothing)."""
    group = GroupTable(kind)

    def prompt_after_preemption(sizes: TableSizes, t: TableCounts) -> Num:
        again = counts.prompt_after_truncation(
            t.prompt, sizes.backoff, t.prompt < t.submitted_prompt_tokens
        )
        return if_(both(sizes.sends == 1, t.status == PREEMPTED), again, t.prompt)

    def submit(sizes: TableSizes, _t: TableCounts, submitted_prompt_tokens: Num) -> TableCounts:
        kept = counts.prompt_after_truncation(submitted_prompt_tokens, sizes.backoff, False)
        return GONE_TABLE._replace(
            status=WAITING,
            submitted_prompt_tokens=submitted_prompt_tokens,
            prompt=if_(sizes.sends == 1, kept, submitted_prompt_tokens),
        )

    def may_admit(
        sizes: TableSizes,
        t: TableCounts,
        blocks: Num,
        own: Num,
        lacking: Num,
        external: Num,
        shared_prefix_boundary: Num,
        hashed: Num,
    ) -> Truth:
        prompt = prompt_after_preemption(sizes, t)
        hit = blocks * sizes.block_size
        parts = all_of(
            blocks >= 0,
            hit < prompt + t.out,
            own >= 0,
            own <= blocks,
            either(own == blocks, external > 0),
            implies(sizes.caching == 0, hit == 0),
        )
        offered = counts.tokens_loaded_by_decode(prompt, sizes.backoff)
        connected = both(sizes.connected == 1, sizes.sends == 0)
        loads = both(
            both(external >= 0, shared_prefix_boundary >= 0),
            implies(external > 0, both(connected, hit + external == offered)),
        )
        held = max_(own - nulls(sizes, prompt, hit, own, external), 0)
        lacks = may_lack(kind, held, lacking)
        return all_of(parts, loads, lacks, hashed >= 0, hashed <= held - lacking)

    def whole_units(sizes: TableSizes, _t: TableCounts, blocks: Num, *_others: Num) -> Truth:
        return counts.round_down(blocks, sizes.units) == blocks

    def left_behind(sizes: TableSizes, prompt: Num, hit: Num, external: Num) -> Num:
        total = hit + external
        needed = counts.needed_from_load(total, prompt) if kind == "window" else total
        return group.skipped(sizes, if_(external > 0, needed, total))

    def nulls(sizes: TableSizes, prompt: Num, hit: Num, own: Num, external: Num) -> Num:
        """Null entries in front of a table after a hit of `own` blocks."""
        left = left_behind(sizes, prompt, hit, external)
        return max_(left, group.null_in_hit(sizes, own))

    def admit(
        sizes: TableSizes,
        t: TableCounts,
        blocks: Num,
        own: Num,
        lacking: Num,
        external: Num,
        shared_prefix_boundary: Num,
        hashed: Num,
    ) -> TableCounts:
        """A hit of `blocks` blocks, of which the group has `own` blocks itself, and a load. The
        blocks that are `lacking` in the hit are null in the table."""
        prompt = prompt_after_preemption(sizes, t)
        hit = blocks * sizes.block_size
        total = hit + external
        left = left_behind(sizes, prompt, hit, external)
        table = TableCounts(
            status=if_(external > 0, LOADING, t.status),
            submitted_prompt_tokens=t.submitted_prompt_tokens,
            prompt=prompt,
            out=t.out,
            computed=total,
            hit=hit,
            external=external,
            shared_prefix_boundary=shared_prefix_boundary,
            length=max_(left, own),
            null=nulls(sizes, prompt, hit, own, external) + lacking,
            num_cached_blocks=max_(counts.blocks_counted_after_hit(own, left), t.num_cached_blocks),
        )
        missing = counts.blocks_for_tokens(total, sizes.block_size) - table.length
        table = table._replace(length=table.length + if_(external > 0, max_(missing, 0), 0))
        held = max_(own - table.null, 0)
        return table._replace(hashed=held if kind == "full" else hashed)

    def may_compute(sizes: TableSizes, t: TableCounts, tokens: Num, hashed: Num) -> Truth:
        fits = all_of(tokens > 0, tokens <= t.known - t.computed, tokens <= sizes.chunk)
        return both(fits, group.may_hash(t, compute(sizes, t, tokens, hashed), hashed))

    def is_chosen(sizes: TableSizes, t: TableCounts, tokens: Num, _hashed: Num) -> Truth:
        if kind != "mamba":
            return True
        split = counts.align_chunk(
            t.computed,
            tokens,
            max_(t.prompt, t.known - 1),
            t.known,
            sizes.block_size,
            sizes.shared_chunk,
            t.shared_prefix_boundary,
        )
        return split == tokens

    def compute(sizes: TableSizes, t: TableCounts, tokens: Num, hashed: Num) -> TableCounts:
        end = t.computed + tokens
        table = group.grown(sizes, group.released(sizes, t, t.computed), end)
        table = group.counting(sizes, table, end)._replace(status=RUNNING, computed=end)
        return group.hashing(sizes, table, hashed)

    def release(sizes: TableSizes, t: TableCounts, hashed: Num) -> TableCounts:
        return group.hashing(sizes, group.released(sizes, t, t.computed), hashed)

    def may_release(sizes: TableSizes, t: TableCounts, hashed: Num) -> Truth:
        return group.may_hash(t, release(sizes, t, hashed), hashed)

    def last_output(sizes: TableSizes) -> Num:
        return counts.output_tokens(sizes.max_tokens, sizes.sends == 1)

    def sample(sizes: TableSizes, t: TableCounts, hashed: Num) -> TableCounts:
        longer = t._replace(out=t.out + 1)
        ends = longer.out >= last_output(sizes)
        sent = where(sizes.sends == 1, kept_for_decode(sizes, t, hashed), GONE_TABLE)
        return where(ends, sent, longer._replace(hashed=hashed))

    def kept_for_decode(sizes: TableSizes, t: TableCounts, hashed: Num) -> TableCounts:
        """A finished request whose blocks P keeps for D: P frees the blocks that D does not
        need."""
        needed = counts.needed_from_load(t.computed, t.submitted_prompt_tokens)
        kept = group.released(sizes, t._replace(status=SENDING, out=t.out + 1), needed)
        return group.hashing(sizes, kept, hashed)

    def may_sample(sizes: TableSizes, t: TableCounts, hashed: Num) -> Truth:
        stays = t.out + 1 < last_output(sizes)
        kept = kept_for_decode(sizes, t, hashed)
        sent = either(sizes.sends == 0, group.may_hash(t, kept, kept.hashed))
        return if_(stays, hashed == t.hashed, sent)

    def finish_load(sizes: TableSizes, t: TableCounts, preempted: Num, hashed: Num) -> TableCounts:
        status = if_(preempted == 1, PREEMPTED, WAITING)
        taken = group.hashing(sizes, group.counting(sizes, t, t.computed), hashed)
        taken = taken._replace(status=status, computed=counts.resumed_at(t.computed, t.known))
        return where(t.status == FAILED, t.emptied(WAITING), taken)

    def may_finish_load(sizes: TableSizes, t: TableCounts, _preempted: Num, hashed: Num) -> Truth:
        taken = group.counting(sizes, t, t.computed)
        return either(t.status == FAILED, group.may_hash(t, taken, hashed))

    def failed(sizes: TableSizes, t: TableCounts) -> TableCounts:
        again = both(t.status == LOADING, sizes.recomputes == 1)
        return where(again, restarted(t), GONE_TABLE)

    def abort(_sizes: TableSizes, t: TableCounts) -> TableCounts:
        return where(keeps_its_blocks(t), t._replace(status=ABORTED), GONE_TABLE)

    hashes = {"hashed": at_least(0)}

    def choosing(**ranges: Range) -> Mapping[str, Range]:
        return {**ranges, **hashes}

    def empty(_sizes: TableSizes, t: TableCounts) -> Truth:
        return both(t.among(WAITING, PREEMPTED), t.length == 0)

    return System(
        kind,
        lambda _sizes: GONE_TABLE,
        (
            Action(
                "submit",
                lambda _s, t: t.status == GONE,
                submit,
                lambda _s: {"submitted_prompt_tokens": at_least(1)},
            ),
            Action(
                "admit",
                empty,
                admit,
                lambda _s: choosing(
                    blocks=at_least(0),
                    own=at_least(0),
                    lacking=at_least(0),
                    external=at_least(0),
                    shared_prefix_boundary=at_least(0),
                ),
                may_admit,
                whole_units,
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
            Action("preempt", lambda _s, t: t.status == RUNNING, preempted),
            Action(
                "loaded",
                lambda _s, t: t.status == LOADING,
                lambda _s, t: t._replace(status=LOADED),
            ),
            Action("failed", lambda _s, t: t.among(LOADING, ABORTED), failed),
            Action(
                "finish_load",
                lambda _s, t: t.among(LOADED, FAILED),
                finish_load,
                lambda _s: choosing(preempted=between(0, 1)),
                may_finish_load,
            ),
            Action(
                "abort",
                lambda _s, t: t.among(WAITING, RUNNING, PREEMPTED, LOADING, LOADED, FAILED),
                abort,
            ),
            Action(
                "leave",
                lambda _s, t: t.among(SENDING, ABORTED),
                lambda _s, _t: GONE_TABLE,
            ),
        ),
    )
