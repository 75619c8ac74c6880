"""P pushes: the model and live vLLM do the same."""

import pytest

from kvproof.model.events import (
    Complete,
    Event,
    Schedule,
    Submit,
    TransferDone,
)
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS

PREFILL: list[Event] = [Submit("P", "r0"), Schedule("P"), Complete("P")]
DECODE: list[Event] = [Submit("D", "r0"), Schedule("D")]
LEASES = CLUSTERS["push-leases"]


@pytest.mark.live
@pytest.mark.parametrize("first", ["P", "D"])
def test_live_vllm_pushes_the_same(first: str) -> None:
    from kvproof.live.machine import LiveMachine

    order = [*PREFILL, *DECODE] if first == "P" else [PREFILL[0], *DECODE, *PREFILL[1:]]
    live, model = LiveMachine(LEASES), ModelMachine(LEASES)
    for event in [*order, TransferDone("r0"), Schedule("D"), Complete("D")]:
        assert live.take(event).after == model.take(event).after
    live.close()
