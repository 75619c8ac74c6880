"""Speculative decoding in the model: which drafts may be accepted."""

from typing import Any

import msgspec
import pytest

from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS


def decoding(name: str = "drafts") -> ModelMachine:
    """A machine whose first request has sampled a token and verifies drafts in flight."""
    machine = ModelMachine(CLUSTERS[name])
    for event in (Submit("E", "r0"), Schedule("E"), Complete("E"), Schedule("E")):
        machine.take(event)
    return machine


def test_the_output_may_accept_any_number_of_drafts() -> None:
    accepted = [e.accepted for e in decoding().stimuli() if isinstance(e, Complete)]
    assert accepted == [{}, {"r0": 1}, {"r0": 2}]


@pytest.mark.parametrize("accepted", [[1], {"r0": "1"}, {"r0": True}])
def test_a_broken_acceptance_is_refused(accepted: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"at `\$.accepted"):
        msgspec.convert({"type": "Complete", "engine": "E", "accepted": accepted}, Event)
