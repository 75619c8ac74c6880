"""The functions of vLLM that are called on the cases of our rules.

Ranges leave out what vLLM can never get; where one does, it is said. Speculative decoding, context
parallelism and sparse retention are switched off, as everywhere in kvproof.
"""

import functools
from typing import Any

from kvproof.live.functions import handover, managers, scheduling
from kvproof.live.functions.function import Function
from kvproof.model import counts
from kvproof.model.algebra import (
    Num,
    Truth,
    all_of,
    both,
    ceil_div,
    either,
    if_,
    max_,
    min_,
    not_,
)
from kvproof.model.errors import unknown
from kvproof.model.ranges import at_least, between
from kvproof.model.rules import Rules

SIZE = at_least(1)
BLOCKS = at_least(0)
FLAG = between(0, 1)


def _grown(_rules: Rules, end: Num, block_size: Num, held_blocks: Num) -> Num:
    return counts.attention_blocks_predicted(end, block_size, held_blocks, 0)


def _fits(end: Num, block_size: Num, held_blocks: Num) -> Truth:
    """A table is never longer than its tokens need: no draft tokens are modelled."""
    return held_blocks <= counts.blocks_for_tokens(end, block_size)


def _one_way(loaded: Num, computing: Num) -> Truth:
    """A request is admitted to compute, or to load and compute nothing yet."""
    return either(both(loaded == 0, computing >= 1), both(loaded >= 1, computing == 0))


def _window_admission(
    rules: Rules,
    window: Num,
    block_size: Num,
    hit_blocks: Num,
    loaded: Num,
    computing: Num,
    prompt: Num,
    idle: Num,
) -> Num:
    computed = hit_blocks * block_size + loaded
    needed = if_(loaded > 0, rules.needed_from_load(computed, prompt), computed)
    skipped = counts.full_blocks(counts.tokens_skipped_by_window(needed, window), block_size)
    new = counts.attention_blocks_predicted(computed + computing, block_size, hit_blocks, skipped)
    return new + if_(idle == 1, max_(hit_blocks - skipped, 0), 0)


def _within_prompt(
    block_size: Num, hit_blocks: Num, loaded: Num, computing: Num, prompt: Num, **_: Num
) -> Truth:
    """A local hit leaves a token of the prompt; a load need not."""
    hit = hit_blocks * block_size
    inside = both(hit < prompt, hit + loaded + computing <= prompt)
    return both(_one_way(loaded, computing), inside)


def _state_admission(
    rules: Rules, block_size: Num, hit_blocks: Num, loaded: Num, computing: Num, idle: Num
) -> Num:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    used = either(hit_blocks > skipped, rules.reserves_superseded_state())
    new = counts.state_blocks_predicted(computed + computing, block_size, hit_blocks)
    return new + if_(all_of(idle == 1, hit_blocks >= 1, used), 1, 0)


def _counted(rules: Rules, block_size: Num, hit_blocks: Num, loaded: Num) -> Num:
    computed = hit_blocks * block_size + loaded
    skipped = counts.full_blocks(counts.tokens_skipped_by_state(computed), block_size)
    return rules.counted_after_hit(hit_blocks, skipped)


def _loads_the_whole_prompt(
    block_size: Num, hit_blocks: Num, loaded: Num, prompt: Num, **_: Num
) -> Truth:
    return both(loaded > 0, hit_blocks * block_size + loaded == prompt)


def _loads_beyond_a_state(hit_blocks: Num, loaded: Num, idle: Num, **_: Num) -> Truth:
    return all_of(hit_blocks > 0, loaded > 0, idle == 1)


def _loads_a_block(block_size: Num, loaded: Num, **_: Num) -> Truth:
    """Whether a block before the state, which ends the load, is left null."""
    return loaded > block_size


def _aligned_chunk(
    rules: Rules, block_size: Num, junction_blocks: Num, **rest: Num
) -> tuple[Num, Num, Num]:
    chunk = rules.align_chunk(block_size=block_size, junction=junction_blocks * block_size, **rest)
    return chunk, chunk, chunk


def _schedulable(
    start: Num, tokens: Num, prefill_end: Num, known: Num, chunk_limit: Num, **_: Num
) -> Truth:
    """A prefill ends with the prompt, or before the last token of a request that goes on."""
    ends = either(prefill_end == known, prefill_end == known - 1)
    return all_of(start < known, start + tokens <= known, tokens <= chunk_limit, ends)


def _truncated(
    rules: Rules,
    prompt: Num,
    backoff: Num,
    asked: Num,
    embeds: Num,  # noqa: ARG001
) -> tuple[Num, Num, Num]:
    length = prompt
    for times in (1, 2, 3):
        again = rules.prompt_after_truncation(length, backoff, length < prompt)
        length = if_(asked >= times, again, length)
    return length, length, length


def _last(blocks: Num, kept: Num) -> tuple[Num, Num]:
    """The first of the last so many blocks of a list, 0 for none, and how many."""
    kept = min_(blocks, kept)
    return if_(kept > 0, blocks - kept, 0), kept


def _window_offer(_rules: Rules, blocks: Num, window: Num, block_size: Num) -> tuple[Num, Num]:
    return _last(blocks, counts.window_blocks_offered(window, block_size))


def _state_offer(rules: Rules, blocks: Num) -> tuple[Num, Num]:
    return _last(blocks, rules.state_slots_moved(blocks))


def _paired(
    rules: Rules, tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num
) -> tuple[Any, ...]:
    first = hit_blocks * local_ratio
    local = counts.blocks_for_tokens(tokens, local_ratio) * local_ratio - first
    remote = counts.blocks_for_tokens(tokens, remote_ratio) * remote_ratio
    a, b, c, d = rules.trim(first, local, 0, remote, local_ratio == remote_ratio)
    lives = rules.lists_can_be_paired(local, remote, local_ratio, remote_ratio)
    parts = (if_(b > a, part, 0) for part in (a, b, c, d))
    return tuple(if_(lives, part, handover.DIES) for part in parts)


def _longer_here(tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num) -> Truth:
    """Whether ratios are unequal and D's list is longer than P's."""
    fresh = ceil_div(tokens, local_ratio) * local_ratio - hit_blocks * local_ratio
    longer = fresh > ceil_div(tokens, remote_ratio) * remote_ratio
    return both(longer, not_(local_ratio == remote_ratio))


def _longer_there(tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num) -> Truth:
    """Whether ratios are unequal and P's list is as long as D's, or longer."""
    longer = _longer_here(tokens, hit_blocks, local_ratio, remote_ratio)
    return both(not_(longer), not_(local_ratio == remote_ratio))


def _accepted_beside_state(
    tokens: Num, hit_blocks: Num, local_ratio: Num, remote_ratio: Num
) -> Truth:
    """vLLM's handshake accepts unequal ratios beside Mamba only where D caches no prefixes."""
    loads = _something_to_load(tokens, hit_blocks, local_ratio)
    return both(loads, either(local_ratio == remote_ratio, hit_blocks == 0))


def _something_to_load(tokens: Num, hit_blocks: Num, local_ratio: Num, **_: Num) -> Truth:
    """D, having hit all, does not read."""
    return hit_blocks * local_ratio < tokens


FUNCTIONS: dict[str, Function] = {
    each.id: each
    for each in (
        Function(
            "tokens_skipped_by_window",
            "SlidingWindowManager.get_num_skipped_tokens",
            lambda _rules, **v: counts.tokens_skipped_by_window(**v),
            {"computed": at_least(0), "window": SIZE},
            managers.window_skipped,
        ),
        Function(
            # Of no computed tokens vLLM says -1, which it takes for none.
            "tokens_skipped_by_state",
            "MambaManager.get_num_skipped_tokens",
            lambda _rules, **v: counts.tokens_skipped_by_state(**v),
            {"computed": at_least(1)},
            managers.state_skipped,
            dead=1,
        ),
        Function(
            "window_blocks_for_hit",
            "SlidingWindowManager._contiguous_blocks_for_hit",
            lambda _rules, **v: counts.window_blocks_for_hit(**v),
            {"window": SIZE, "block_size": SIZE},
            managers.window_hit,
        ),
        Function(
            "serves_a_hit",
            "SlidingWindowManager.reachable_block_mask",
            lambda _rules, block, window, block_size, units: (
                (counts.serves_a_hit(block, window, block_size, units * block_size),) * 2
            ),
            {"block": BLOCKS, "window": SIZE, "block_size": SIZE, "units": SIZE},
            managers.mask,
        ),
        Function(
            "attention_growth",
            "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
            _grown,
            {"end": at_least(1), "block_size": SIZE, "held_blocks": BLOCKS},
            functools.partial(managers.growth, "full"),
            dead=1,
        ),
        Function(
            "state_growth",
            "MambaManager.get_num_blocks_to_allocate",
            lambda _rules, **v: counts.state_blocks_predicted(**v),
            {"end": at_least(1), "block_size": SIZE, "held_blocks": BLOCKS},
            functools.partial(managers.growth, "mamba"),
            given=_fits,
            dead=1,
        ),
        Function(
            "window_admission",
            "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
            _window_admission,
            {
                "window": SIZE,
                "block_size": SIZE,
                "hit_blocks": BLOCKS,
                "loaded": at_least(0),
                "computing": at_least(0),
                "prompt": SIZE,
                "idle": FLAG,
            },
            managers.window_admission,
            given=_within_prompt,
            differs={"window_of_loaded_tokens": _loads_the_whole_prompt},
            dead=1,
        ),
        Function(
            "state_admission",
            "MambaManager.get_num_blocks_to_allocate",
            _state_admission,
            {
                "block_size": SIZE,
                "hit_blocks": BLOCKS,
                "loaded": at_least(0),
                "computing": at_least(0),
                "idle": FLAG,
            },
            managers.state_admission,
            given=lambda loaded, computing, **_: _one_way(loaded, computing),
            differs={"superseded_state_reserved": _loads_beyond_a_state},
            dead=1,
        ),
        Function(
            "counted_after_hit",
            "SingleTypeKVCacheManager.add_local_computed_blocks",
            _counted,
            {"block_size": SIZE, "hit_blocks": BLOCKS, "loaded": at_least(1)},
            managers.counted,
            differs={"null_blocks_counted_as_cached": _loads_a_block},
        ),
        Function(
            "align_chunk",
            "Scheduler._mamba_block_aligned_split",
            _aligned_chunk,
            {
                "start": at_least(0),
                "tokens": SIZE,
                "prefill_end": SIZE,
                "known": SIZE,
                "block_size": SIZE,
                "chunk_limit": SIZE,
                "junction_blocks": BLOCKS,
            },
            scheduling.aligned_chunk,
            given=_schedulable,
        ),
        Function(
            "longest_hit_tokens",
            "KVCacheManager.get_computed_blocks",
            lambda _rules, known, block_size, units: counts.longest_hit_tokens(
                known, block_size * units
            ),
            {"known": SIZE, "block_size": SIZE, "units": SIZE},
            scheduling.longest_hit,
        ),
        Function(
            "resumed_at",
            "Scheduler._update_waiting_for_remote_kv",
            lambda _rules, **v: counts.resumed_at(**v),
            {"loaded": SIZE, "prompt": SIZE},
            scheduling.resumed,
            given=lambda loaded, prompt: loaded <= prompt,
        ),
        Function(
            "tokens_loaded_by_decode",
            "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
            lambda rules, **v: rules.tokens_loaded_by_decode(**v),
            {"prompt": SIZE, "backoff": FLAG},
            handover.remote_count,
        ),
        Function(
            "prompt_after_truncation",
            "NixlBaseConnectorScheduler._truncate_request_for_prefill",
            _truncated,
            {"prompt": SIZE, "backoff": FLAG, "asked": between(1, 3), "embeds": FLAG},
            handover.truncated,
            dead=2,
        ),
        Function(
            "window_blocks_offered",
            "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
            _window_offer,
            {"blocks": BLOCKS, "window": SIZE, "block_size": SIZE},
            handover.window_offer,
        ),
        Function(
            "state_slots_moved",
            "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
            _state_offer,
            {"blocks": BLOCKS},
            handover.state_offer,
        ),
        Function(
            "trim_beside_state",
            "NixlBaseConnectorWorker._apply_prefix_caching",
            _paired,
            {"tokens": SIZE, "hit_blocks": BLOCKS, "local_ratio": SIZE, "remote_ratio": SIZE},
            functools.partial(handover.paired, "mamba"),
            given=_accepted_beside_state,
            bound=12,
            dead=3,
        ),
        Function(
            "trim_beside_window",
            "NixlBaseConnectorWorker._apply_prefix_caching",
            _paired,
            {"tokens": SIZE, "hit_blocks": BLOCKS, "local_ratio": SIZE, "remote_ratio": SIZE},
            functools.partial(handover.paired, "window"),
            given=_something_to_load,
            bound=12,
            differs={
                "longer_list_dies_across_ratios": _longer_here,
                "end_trim_across_ratios": _longer_there,
            },
            dead=3,
        ),
        Function(
            "logical_block",
            "NixlBaseConnectorWorker._logical_to_kernel_block_ids",
            lambda _rules, kernel, ratio: counts.logical_block(kernel, ratio),
            {"kernel": BLOCKS, "ratio": SIZE},
            handover.kernel_block,
        ),
    )
}


def function_named(name: str) -> Function:
    """The function with this id. Raises UsageError with the nearest name."""
    if name not in FUNCTIONS:
        raise unknown("function", name, FUNCTIONS)
    return FUNCTIONS[name]
