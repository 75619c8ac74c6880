"""Each rule beside the function of vLLM that computes it, on numbers that are drawn: they agree, or
a known finding says why not."""

from collections.abc import Iterable

import pytest

pytest.importorskip("vllm")

from kvproof.live.known.registry import KNOWN
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import FAULTS
from tests.functions.function import Compared, compare
from tests.functions.registry import FUNCTIONS
from tests.in_vllm import MAMBA, NIXL_SCHEDULER, SINGLE, WINDOW, around, instead, line
from tests.mistakes import MISTAKES

pytestmark = pytest.mark.live

NAMES = tuple(FUNCTIONS)


def compared(name: str, faults: Iterable[Fault] | None = None) -> Compared:
    """A function of the registry beside its rule, its known findings told as faults."""
    known = [FAULTS[name] for name in KNOWN if name in FAULTS] if faults is None else faults
    return compare(FUNCTIONS[name], known)


@pytest.mark.parametrize("name", NAMES)
def test_vllm_computes_what_the_rule_says(name: str) -> None:
    """A difference is red unless a known finding explains it, and so is one that shows
    no more."""
    found = compared(name)
    assert not found.unexplained
    assert found.explained_by == {*FUNCTIONS[name].differs}


PATCHES = {
    "tokens_skipped_by_window": instead(
        f"{WINDOW}.get_num_skipped_tokens", lambda self, n: max(0, n - self.sliding_window)
    ),
    "tokens_loaded_by_decode": MISTAKES["decode_loads_whole_prompt"].change,
    "align_chunk": MISTAKES["no_align_split"].change,
    "state_growth": around(f"{MAMBA}.get_num_blocks_to_allocate", lambda right, *a: right(*a) + 1),
    "trim_beside_window": MISTAKES["front_trim"].change,
    "prompt_after_truncation": line(
        f"{NIXL_SCHEDULER}._truncate_request_for_prefill",
        'not params.get("_p_side_truncated")',
        "True",
    ),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_mistake_in_vllm_is_a_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PATCHES[name](monkeypatch)
    assert compared(name).unexplained


@pytest.mark.parametrize(
    "name", ["window_admission", "state_admission", "counted_after_hit", "trim_beside_window"]
)
def test_a_finding_that_is_not_known_explains_nothing(name: str) -> None:
    found = compared(name, faults=())
    assert found.unexplained
    assert not found.explained_by


def test_a_known_finding_explains_only_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window judged by the loaded tokens is known; one block more than that is not."""
    around(f"{SINGLE}.get_num_blocks_to_allocate", lambda right, *a: right(*a) + 1)(monkeypatch)
    assert not compared("window_admission").explained_by
