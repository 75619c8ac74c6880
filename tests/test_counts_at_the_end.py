"""An answer ends among accepted drafts while a later step is under way: its count may be without
the drafts after the end, with and without the tokens of the later step, and nothing else."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import GUARDS
from kvproof.model.events import Complete
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import RUNNING, SENDING, Engine, Flight, Request, State
from kvproof.model.step import Effects, Step

CLUSTER = CLUSTERS["turns-drafts"]
NAME = CLUSTER.decode.name
PROMPT = "a" * 15
WAS = Request("r", RUNNING, PROMPT, 15, 3, output=".", computed=21)
"""The first of three tokens is there; steps of 3 tokens each end at 18 and at 21."""


def ended(computed: int) -> Step:
    """Both drafts of the older step are accepted: its third token is one too many."""
    older = (Flight("r", 3, True, ahead=2, drafts=2),)
    later = (Flight("r", 3, True, ahead=2, drafts=2),)
    now = WAS._replace(status=SENDING, output="...", computed=computed)
    before = Engine(NAME, (), (), requests=(WAS,), steps=(older, later))
    after = Engine(NAME, (), (), requests=(now,), steps=(later,))
    event = Complete(NAME, {"r": 2})
    return Step(State((before,)), event, Effects(), State((after,)))


@pytest.mark.parametrize("computed", range(15, 23))
def test_three_numbers_are_permitted(computed: int) -> None:
    guard = GUARDS["computed_tokens_are_those_scheduled"]
    found = list(broken(CLUSTER, ended(computed), [guard]))
    assert bool(found) is (computed not in (17, 20, 21))
