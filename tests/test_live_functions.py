"""Each rule beside the function of vLLM that computes it, on numbers found by Z3: they agree, or a
known deviation says why not."""

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.ranges import at_least
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from tests.planted import under
from tests.test_sizes import MUTANTS, ON_VLLM

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


def compared(name: str, faults: Iterable[Fault] | None = None) -> Any:
    """A function of the registry beside its rule, its known deviations told as faults."""
    from kvproof.live.known.registry import KNOWN
    from tests.functions.function import compare
    from tests.functions.registry import FUNCTIONS

    known = [FAULTS[name] for name in KNOWN if name in FAULTS] if faults is None else faults
    return compare(FUNCTIONS[name], known)


@pytest.mark.parametrize("name", NAMES)
def test_vllm_computes_what_the_rule_says(name: str) -> None:
    """A difference is red unless a known deviation explains it, and so is a deviation that shows
    no more, a branch that no case takes, and what Z3 gave up on."""
    found = compared(name)
    assert not found.complaints, "\n".join(found.complaints)
    assert len(found.cases.cases) > 1


def test_every_function_is_compared() -> None:
    from tests.functions.registry import FUNCTIONS

    assert tuple(FUNCTIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_of_ours_is_a_difference(name: str) -> None:
    """The cases are those of the wrong rule, as they would be if it were ours."""
    mutant = next(m for m, shown in zip(MUTANTS, ON_VLLM, strict=True) if name in shown)
    wrong = {f"arithmetic.counts:{mutant.rule}": mutant.wrong}
    assert under(wrong, compared, name).complaints


BESIDE_THE_MODEL = {
    "settled_tokens": "window_freed_in_flight",
    "tokens_to_cache": "drafts_are_cached",
    "computed_after_drafts": "rejected_drafts_are_computed",
    "cacheable_tokens": "last_match_not_dropped",
    "hashed_tokens": "cached_before_the_next_token",
    "tokens_offered": "held_goes_beyond_answer",
    "held_tokens_loaded": "held_state_is_of_the_prompt",
    "tail_chunk": "prompt_end_run_over",
    "output_tokens": "prefill_decodes_on",
    "attention_blocks_offered": "partial_block_not_offered",
    "state_is_used": "superseded_state_reserved",
    "blocks_from_queue": "prediction_forgets_hits",
    "copies_of_hit": "copy_not_predicted",
}
"""Counts that no function of vLLM computes by itself, and the faults that are mistakes in them. The
explorer finds these; live vLLM is held against the counts by the model beside it."""


def test_every_count_has_a_mistake_that_shows() -> None:
    here = [f for f in vars(counts).values() if getattr(f, "__module__", "") == counts.__name__]
    called = {m.rule for m, shown in zip(MUTANTS, ON_VLLM, strict=True) if shown}
    assert {f.__name__ for f in here} == called | set(BESIDE_THE_MODEL)
    assert set(BESIDE_THE_MODEL.values()) <= set(FAULTS)
    assert set().union(*ON_VLLM) == set(NAMES)


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
    from tests.functions.managers import state_skipped

    assert state_skipped(0) == -1


def test_what_a_driver_raises_is_told_with_its_numbers() -> None:
    from tests.functions.function import Function, compare

    def raising(n: int) -> int:  # noqa: ARG001
        raise ValueError("no")

    function = Function("f", "vllm.f", lambda n: n, {"n": at_least(3)}, raising)
    with pytest.raises(ValueError, match="no") as raised:
        compare(function, ())
    assert raised.value.__notes__ == ["vllm.f was called for {'n': 3}"]
