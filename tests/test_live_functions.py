"""Each rule beside the function of vLLM that computes it, on numbers found by Z3: they agree, or a
known deviation says why not."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, ceil_div, div, if_, max_, min_, round_down
from kvproof.model.arithmetic.ranges import at_least
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules

needed_at = counts.needed_at
RETAINED = "retained_in_window"

pytestmark = pytest.mark.live

NAMES = (
    "tokens_skipped_by_window",
    "tokens_skipped_by_state",
    "window_blocks_for_hit",
    "serves_a_hit",
    "retained_in_window",
    "retained_state",
    "attention_growth",
    "state_growth",
    "window_admission",
    "state_admission",
    "counted_after_hit",
    "align_chunk",
    "longest_hit_tokens",
    "resumed_at",
    "tokens_loaded_by_decode",
    "prompt_after_truncation",
    "window_blocks_offered",
    "state_slots_moved",
    "trim_beside_state",
    "trim_beside_window",
    "logical_block",
)


def compared(name: str, rules: Rules = REFERENCE, faults: Iterable[Fault] | None = None) -> Any:
    """A function of the registry beside its rule, its known deviations told as faults."""
    from kvproof.live.deviations.registry import KNOWN
    from kvproof.live.functions.function import compare
    from kvproof.live.functions.registry import function_named

    known = [FAULTS[name] for name in KNOWN] if faults is None else faults
    return compare(function_named(name), rules, known)


@pytest.mark.parametrize("name", NAMES)
def test_vllm_computes_what_the_rule_says(name: str) -> None:
    """A difference is red unless a known deviation explains it, and so is a deviation that shows
    no more, a branch that no case takes, and what Z3 gave up on."""
    found = compared(name)
    assert not found.complaints, "\n".join(found.complaints)
    assert len(found.cases.cases) > 1


def test_every_function_is_compared() -> None:
    from kvproof.live.functions.registry import FUNCTIONS

    assert tuple(FUNCTIONS) == NAMES


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

RULE_OF = {"blocks_counted_after_hit": "counted_after_hit"}
"""Rules that are functions of `counts` under another name."""


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=lambda n: MISTAKES[n].name)
def test_a_mistake_of_ours_is_a_difference(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases are those of the wrong rule, as they would be if it were ours."""
    name, wrong, shows_in = MISTAKES[number]
    rule = RULE_OF.get(name, name)
    rules = REFERENCE.with_rule(rule, wrong) if hasattr(REFERENCE, rule) else REFERENCE
    monkeypatch.setattr(counts, name, wrong)
    assert compared(shows_in, rules).complaints


BESIDE_THE_MODEL = {
    "settled_tokens": "window_freed_in_flight",
    "tokens_to_cache": "drafts_are_cached",
    "computed_after_drafts": "rejected_drafts_are_computed",
    "cacheable_tokens": "last_match_not_dropped",
    "hashed_tokens": "cached_before_the_next_token",
    "tokens_handed_over": "held_goes_beyond_answer",
    "held_tokens_loaded": "held_state_is_of_the_prompt",
    "tail_chunk": "prompt_end_run_over",
    "copies_of_hit": "copy_not_predicted",
}
"""Counts that no function of vLLM computes by itself, and the faults that are mistakes in them. The
explorer finds these; live vLLM is held against the counts by the model beside it."""


def test_every_count_has_a_mistake_that_shows() -> None:
    here = [f for f in vars(counts).values() if getattr(f, "__module__", "") == counts.__name__]
    assert {f.__name__ for f in here} == {m.name for m in MISTAKES} | set(BESIDE_THE_MODEL)
    assert set(BESIDE_THE_MODEL.values()) <= set(FAULTS)
    assert {mistake.shows_in for mistake in MISTAKES} == set(NAMES)


def _skips_one_less(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager as Owner

    patch.setattr(Owner, "get_num_skipped_tokens", lambda self, n: max(0, n - self.sliding_window))


def _loads_all(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_scheduler

    owner = base_scheduler.NixlBaseConnectorScheduler
    patch.setattr(owner, "_get_remote_prefill_token_count", lambda _self, prompt: prompt)


def _does_not_split(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    patch.setattr(Scheduler, "_mamba_block_aligned_split", lambda _s, _r, tokens, *_a: tokens)


def _takes_one_more(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager

    original = MambaManager.get_num_blocks_to_allocate
    patch.setattr(MambaManager, "get_num_blocks_to_allocate", lambda *args: original(*args) + 1)


def _trims_the_end(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

    def front(_self: Any, local: Any, remote: Any, _ours: int, _theirs: int) -> Any:
        return local, [b[: len(a)] for a, b in zip(local, remote, strict=True)]

    patch.setattr(base_worker.NixlBaseConnectorWorker, "_apply_prefix_caching", front)


def _truncates_again(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_scheduler

    owner = base_scheduler.NixlBaseConnectorScheduler
    original = owner._truncate_request_for_prefill

    def unguarded(self: Any, request: Any) -> None:
        request.kv_transfer_params.pop("_p_side_truncated", None)
        original(self, request)

    patch.setattr(owner, "_truncate_request_for_prefill", unguarded)


PATCHES = {
    "tokens_skipped_by_window": _skips_one_less,
    "tokens_loaded_by_decode": _loads_all,
    "align_chunk": _does_not_split,
    "state_growth": _takes_one_more,
    "trim_beside_window": _trims_the_end,
    "prompt_after_truncation": _truncates_again,
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_mistake_in_vllm_is_a_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PATCHES[name](monkeypatch)
    assert compared(name).unexplained


def test_the_difference_shows_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    _loads_all(monkeypatch)
    first = compared("tokens_loaded_by_decode").unexplained[0]
    assert str(first) == (
        "prompt = 2; backoff = 1: the rule tokens_loaded_by_decode says 1, "
        "NixlBaseConnectorScheduler._get_remote_prefill_token_count computes 2"
    )


@pytest.mark.parametrize(
    "name", ["window_admission", "state_admission", "counted_after_hit", "trim_beside_window"]
)
def test_a_deviation_that_is_not_known_explains_nothing(name: str) -> None:
    found = compared(name, faults=())
    assert found.unexplained == list(found.differences) != []


def test_a_known_deviation_explains_only_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window judged by the loaded tokens is known; one block more than that is not."""
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager as Owner

    original = Owner.get_num_blocks_to_allocate
    monkeypatch.setattr(Owner, "get_num_blocks_to_allocate", lambda *args: original(*args) + 1)
    assert not compared("window_admission").explained_by


def test_with_nothing_computed_vllm_skips_minus_one_token() -> None:
    """Outside the range of the rule, which says 0. The callers in vLLM take it for none."""
    from kvproof.live.functions.managers import state_skipped

    assert state_skipped(0) == -1


def test_what_a_driver_raises_is_told_with_its_numbers() -> None:
    from kvproof.live.functions.function import Function, compare

    def raising(n: int) -> int:  # noqa: ARG001
        raise ValueError("no")

    function = Function("f", "vllm.f", lambda _rules, n: n, {"n": at_least(3)}, raising)
    with pytest.raises(ValueError, match="no") as raised:
        compare(function, REFERENCE, ())
    assert raised.value.__notes__ == ["vllm.f was called for {'n': 3}"]


def test_a_misspelt_name_gets_the_nearest() -> None:
    from kvproof.live.functions.registry import function_named

    with pytest.raises(UsageError, match=r"align_chunks.*Write align_chunk instead"):
        function_named("align_chunks")
