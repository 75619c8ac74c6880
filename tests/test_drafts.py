"""Speculative decoding in the model: which drafts may be accepted, what becomes of the others, and
what is refused."""

from typing import Any

import msgspec
import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import DRAFT

EAGLE = Group("full", 2, eagle=True)


def decoding(name: str = "drafts") -> ModelMachine:
    """A machine whose first request has sampled a token and verifies drafts in flight."""
    machine = ModelMachine(CLUSTERS[name])
    for event in (Submit("E", "r0"), Schedule("E"), Complete("E"), Schedule("E")):
        machine.take(event)
    return machine


def long_decoding(*groups: Group) -> ModelMachine:
    """The same where the request asks for many tokens, of a prompt of 4 in blocks of 4."""
    engine = EngineConfig("E", (Group("full", 4, eagle=True), *groups), 20, drafts=2)
    machine = ModelMachine(Cluster("c", (engine,), (Job("r0", "abcd", 9),)))
    for event in (Submit("E", "r0"), Schedule("E"), Complete("E"), Schedule("E")):
        machine.take(event)
    return machine


def test_the_output_may_accept_any_number_of_drafts() -> None:
    accepted = [e.accepted for e in decoding().stimuli() if isinstance(e, Complete)]
    assert accepted == [{}, {"r0": 1}, {"r0": 2}]


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_a_request_steps_back_to_its_last_right_token(accepted: int) -> None:
    """Three tokens were asked for and one is there: two more end it."""
    machine = decoding()
    engine = machine.state.engine("E")
    assert engine.request("r0").computed == len("abcde.") + 2
    machine.take(Complete("E", {"r0": accepted} if accepted else {}))
    engine = machine.state.engine("E")
    held = engine.find("r0")
    assert (held is None) == (accepted > 0)
    if held is not None:
        assert held.computed == len("abcde.")
        assert held.tokens == "abcde.."
        assert held.drafts == 2


def test_what_a_rejected_draft_wrote_is_marked_and_never_read() -> None:
    machine = long_decoding()
    machine.take(Complete("E", {"r0": 1}))
    slots = [s for block in machine.state.engine("E").memory if block for s in block.slots]
    assert "abcd.." in slots
    assert any(DRAFT in slot for slot in slots)
    step = machine.take(Schedule("E"))
    assert step.effects.reads
    assert all(read.found == read.expected for read in step.effects.reads)


@pytest.mark.parametrize(("accepted", "prefix"), [(0, "abcd."), (1, "abcd..")])
def test_the_state_continued_from_is_that_of_the_accepted_tokens(
    accepted: int, prefix: str
) -> None:
    machine = long_decoding(Group("mamba", 4))
    machine.take(Complete("E", {"r0": accepted} if accepted else {}))
    engine = machine.state.engine("E")
    content = engine.memory[engine.request("r0").states[1]]
    assert content is not None
    assert content.slots == (prefix,)


@pytest.mark.parametrize("accepted", [[1], {"r0": "1"}, {"r0": True}])
def test_a_broken_acceptance_is_refused(accepted: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"at `\$.accepted"):
        msgspec.convert({"type": "Complete", "engine": "E", "accepted": accepted}, Event)


@pytest.mark.parametrize(
    ("groups", "options", "said"),
    [
        ((Group("full", 2),), {"drafts": 9}, "0 to 4"),
        ((EAGLE,), {}, "EAGLE without drafts"),
        ((EAGLE, Group("mamba", 2)), {"drafts": 2}, "two block boundaries"),
    ],
)
def test_what_is_not_covered_is_refused(
    groups: tuple[Group, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        EngineConfig("E", groups, **options)
