"""P pushes: mistakes of earlier releases show there too, and live vLLM does the same."""

import pytest

from kvproof.model.events import (
    Complete,
    Event,
    Schedule,
    Submit,
    TransferDone,
)
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.planted import under

PREFILL: list[Event] = [Submit("P", "r0"), Schedule("P"), Complete("P")]
DECODE: list[Event] = [Submit("D", "r0"), Schedule("D")]
LEASES = CLUSTERS["push-leases"]


@pytest.mark.parametrize(
    ("fault", "cluster", "invariants"),
    [
        ("front_trim", "push-full", ("paired_offsets_are_equal", "request_reads_its_own_prefix")),
        ("read_is_not_reported", "push-failing", ("every_request_can_finish",)),
        ("abort_frees_under_load", "push-failing", ("nothing_reused_under_transfer",)),
        ("aborted_load_never_frees", "push-failing", ("references_are_exact",)),
    ],
)
def test_mistakes_of_earlier_releases_show_where_p_pushes(
    fault: str, cluster: str, invariants: tuple[str, ...]
) -> None:
    """vllm#48633 trimmed from the front, vllm#58188 never reported a write as sent; the aborts are
    those of vllm#32255."""
    outcome = under([FAULTS[fault]], explore, CLUSTERS[cluster])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant in invariants


@pytest.mark.live
@pytest.mark.parametrize("first", ["P", "D"])
def test_live_vllm_pushes_the_same(first: str) -> None:
    from kvproof.live.machine import LiveMachine

    order = [*PREFILL, *DECODE] if first == "P" else [PREFILL[0], *DECODE, *PREFILL[1:]]
    live, model = LiveMachine(LEASES), ModelMachine(LEASES)
    for event in [*order, TransferDone("r0"), Schedule("D"), Complete("D")]:
        assert live.take(event).after == model.take(event).after
    live.close()
