"""Options of an engine in the model: who is served, by what, and what is shared."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.guards_of_requests import _why_another_prompt
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.extra_keys import FIRST, plain, written
from kvproof.model.events import (
    Complete,
    Compute,
    FinishLoad,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    bare,
)
from kvproof.model.machine import ModelMachine
from tests.driving import taken

# Priorities


def test_a_request_with_a_failed_load_is_not_served_with_those_that_hold_blocks() -> None:
    groups = (Group("full", 8), Group("window", 2, window=2))
    common = {"groups": groups, "num_blocks": 16, "policy": "priority"}
    cluster = Cluster(
        "c",
        (
            EngineConfig("P", role="prefill", chunk_tokens=8, **common),
            EngineConfig("D", role="decode", chunk_tokens=1, **common),
        ),
        (Job("r0", "a", 1), Job("r1", "a", 1)),
        failures=1,
        load_failure="recompute",
    )
    machine = taken(
        ModelMachine(cluster), Submit("P", "r0"), Submit("P", "r1"), Schedule("P"), Complete("P")
    )
    for event in (Submit("D", "r0"), Submit("D", "r1"), Schedule("D"), TransferFail("r0")):
        machine.take(event)
    machine.take(TransferDone("r1"))
    step = machine.take(Schedule("D"))
    assert bare(step.event) == Schedule("D", (FinishLoad("r0"), FinishLoad("r1"), Compute("r1", 1)))
    assert not list(broken(cluster, step, [INVARIANTS["priority_is_kept"]]))


# Sessions


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("ab𝚌d", True),
        ("ab𝚌", True),
        ("abcd", True),
        ("ab𝚍d", False),
        ("abｃd", False),
        ("abcde", False),
    ],
)
def test_a_prompt_keeps_its_tokens(now: str, kept: bool) -> None:
    """A letter may say that a token before was dropped; not another token, and not a salt."""
    assert (now == "abcd" or any(_why_another_prompt("abcd", now))) is kept
    assert any(_why_another_prompt("ab𝚌d", "abcd"))


# Salts and LoRA adapters: equal token ids, other KV


@pytest.mark.parametrize("key", FIRST)
def test_letters_say_the_extra_key_and_no_more(key) -> None:
    assert written("abc", "") == "abc"
    assert written("abz", key) != "abz"
    assert plain(written("abz", key) + ".?") == "abz.?"
    assert len({written("a", each) for each in FIRST}) == len(FIRST)
