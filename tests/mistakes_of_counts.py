"""Wrong versions of the functions of counts, each with the function of vLLM that shows it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, ceil_div, div, if_, max_, min_, round_down

needed_at = counts.needed_at  # as it is before a test plants a mistake in it
RETAINED = "retained_in_window"


class Mistake(NamedTuple):
    """A wrong version of a function of `counts`, and the function of vLLM that shows it."""

    name: str
    wrong: Callable[..., Any]
    shows_in: str


def _aligned(**changed: Callable[[Num], Num]) -> Callable[..., Num]:
    """The align split, told something else than it was."""
    right = counts.align_chunk

    def wrong(**numbers: Num) -> Num:
        return right(**{n: changed.get(n, lambda v: v)(v) for n, v in numbers.items()})

    return wrong


def _unserved(block: Num, window: Num, block_size: Num, hit_unit: Num) -> Truth:
    units = div(hit_unit, block_size)
    after = units + 1 - (block - div(block, units) * units)
    return after < counts.window_blocks_for_hit(window, block_size)


def _one_before(
    block: Num, window: Num, block_size: Num, boundary: Num, eagle_drop_blocks: int = 0
) -> Truth:
    return needed_at(block, window, block_size, boundary - block_size, eagle_drop_blocks)


def _added(
    local_first: Num, local_slots: Num, remote_first: Num, remote_slots: Num, *_: Truth
) -> tuple[Num, ...]:
    a, b, c, d = (
        counts.min_(local_first, remote_first),
        min_(local_first + local_slots, remote_first + remote_slots),
        local_first,
        remote_first,
    )
    return a + c, b + c, a + d, b + d


def _grows_what_it_holds(end: Num, block_size: Num, held_blocks: Num) -> Num:
    return min_(max_(counts.blocks_for_tokens(end, block_size) + held_blocks, 0), 1)


def _grows_to_the_end(end: Num, block_size: Num, held_blocks: Num) -> Num:
    return max_(counts.blocks_for_tokens(end, block_size) - held_blocks, 0)


MISTAKES = (
    Mistake(
        "blocks_for_tokens",
        lambda tokens, block_size: div(tokens - block_size + 1, block_size),
        "attention_growth",
    ),
    Mistake(
        "blocks_for_tokens", lambda tokens, block_size: div(tokens, block_size), "state_growth"
    ),
    Mistake(
        "full_blocks", lambda tokens, block_size: ceil_div(tokens, block_size), "window_admission"
    ),
    Mistake(
        "full_blocks", lambda tokens, block_size: ceil_div(tokens, block_size), "state_admission"
    ),
    Mistake(
        "tokens_skipped_by_window",
        lambda computed, window: max_(computed - window - 1, 0),
        "tokens_skipped_by_window",
    ),
    Mistake(
        "tokens_skipped_by_window",
        lambda computed, window: max_(computed + window + 1, 0),
        "tokens_skipped_by_window",
    ),
    Mistake(
        "tokens_skipped_by_window",
        lambda computed, window: max_(computed - window - 1, 0),
        "window_admission",
    ),
    Mistake(
        "tokens_skipped_by_state", lambda computed: max_(computed + 1, 0), "tokens_skipped_by_state"
    ),
    Mistake("tokens_skipped_by_state", lambda computed: max_(computed + 1, 0), "state_admission"),
    Mistake(
        "window_blocks_for_hit",
        lambda window, block_size: ceil_div(window + 1, block_size),
        "window_blocks_for_hit",
    ),
    Mistake(
        "window_blocks_for_hit",
        lambda window, block_size: ceil_div(window + 1, block_size),
        "serves_a_hit",
    ),
    Mistake("serves_a_hit", _unserved, "serves_a_hit"),
    Mistake("needed_at", _one_before, "retained_state"),
    Mistake("is_retained", lambda *numbers: needed_at(*numbers[:3], numbers[6]), RETAINED),
    Mistake(
        "longest_hit_tokens",
        lambda known, hit_unit, _proof=0: round_down(known + 1, hit_unit),
        "longest_hit_tokens",
    ),
    Mistake(
        "longest_hit_tokens",
        lambda known, hit_unit, _proof=0: round_down(known, hit_unit),
        "align_chunk",
    ),
    Mistake(
        "tokens_loaded_by_decode",
        lambda prompt, backoff: if_(prompt > backoff, prompt + backoff, prompt),
        "tokens_loaded_by_decode",
    ),
    Mistake(
        "tokens_loaded_by_decode",
        lambda prompt, backoff: prompt - backoff,
        "tokens_loaded_by_decode",
    ),
    Mistake(
        "prompt_after_truncation",
        lambda prompt, backoff, truncated: if_(truncated, prompt, prompt + backoff),
        "prompt_after_truncation",
    ),
    Mistake(
        "prompt_after_truncation",
        lambda prompt, backoff, _truncated: if_(prompt > backoff, prompt - backoff, prompt),
        "prompt_after_truncation",
    ),
    Mistake("blocks_counted_after_hit", lambda hit, skipped: hit - skipped, "counted_after_hit"),
    Mistake("align_chunk", _aligned(known=lambda known: known + 2), "align_chunk"),
    Mistake(
        "align_chunk",
        _aligned(shared_prefix_boundary=lambda shared_prefix_boundary: -shared_prefix_boundary),
        "align_chunk",
    ),
    Mistake("align_chunk", _aligned(prefill_end=lambda end: end + 1), "align_chunk"),
    Mistake("align_chunk", _aligned(prefill_end=lambda end: end - 1), "align_chunk"),
    Mistake("align_chunk", _aligned(chunk_limit=lambda limit: limit + 1), "align_chunk"),
    Mistake("align_chunk", _aligned(chunk_limit=lambda limit: limit - 1), "align_chunk"),
    Mistake(
        "attention_blocks_predicted",
        lambda end, size, held, skipped: max_(
            counts.blocks_for_tokens(end, size) + max_(held, skipped), 0
        ),
        "attention_growth",
    ),
    Mistake(
        "attention_blocks_predicted",
        lambda end, size, held, _skipped: max_(counts.blocks_for_tokens(end, size) - held, 0),
        "window_admission",
    ),
    Mistake(
        "state_blocks_predicted",
        _grows_what_it_holds,
        "state_growth",
    ),
    Mistake(
        "state_blocks_predicted",
        _grows_to_the_end,
        "state_admission",
    ),
    Mistake("trim", _added, "trim_beside_state"),
    Mistake("trim", _added, "trim_beside_window"),
    Mistake(
        "logical_block",
        lambda kernel, ratio: (div(kernel, ratio), kernel + div(kernel, ratio) * ratio),
        "logical_block",
    ),
    Mistake("state_slots_moved", lambda slots: min_(slots, -1), "state_slots_moved"),
    Mistake("state_slots_moved", lambda slots: slots, "state_slots_moved"),
    Mistake("resumed_at", lambda loaded, prompt: min_(loaded, prompt + 1), "resumed_at"),
    Mistake("needed_from_load", lambda loaded, _prompt: loaded + 1, "window_admission"),
    Mistake(
        "window_blocks_offered",
        lambda window, block_size: counts.blocks_for_tokens(window, block_size) - 1,
        "window_blocks_offered",
    ),
)
