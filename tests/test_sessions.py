"""Sessions: prompts that come in parts, and what is kept between them."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.guards_of_requests import _keeps
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.config_json import from_json, to_json
from kvproof.model.errors import UsageError
from kvproof.model.events import Complete, Continue, Preempt, Schedule, Submit, bare_choice
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict

FULL = Group("full", 2)
SESSIONS = CLUSTERS["sessions"]


def answered(machine: ModelMachine, *names: str) -> None:
    """Schedule until these sessions are paused."""
    engine = machine.state.engine("E")
    while any(engine.request(name).status != "paused" for name in names):
        machine.take(Schedule("E"))
        if machine.stimuli() == [Complete("E")]:
            machine.take(Complete("E"))
        engine = machine.state.engine("E")


def both_wait(machine: ModelMachine) -> None:
    """Two sessions hold all blocks, and each has got a part that needs one more."""
    machine.take(Submit("E", "r0"))
    machine.take(Submit("E", "r1"))
    answered(machine, "r0", "r1")
    machine.take(Continue("E", "r0"))
    machine.take(Continue("E", "r1"))


def test_by_priority_the_session_that_can_wait_gives_way() -> None:
    jobs = tuple(replace(j, priority=1 - n) for n, j in enumerate(SESSIONS.jobs))
    engine = replace(SESSIONS.prefill, policy="priority")
    cluster = replace(SESSIONS, name="c", engines=(engine,), jobs=jobs)
    machine = ModelMachine(cluster)
    both_wait(machine)
    chose = machine.take(Schedule("E")).event
    assert isinstance(chose, Schedule)
    assert chose.chose is not None
    assert bare_choice(chose.chose[0]) == Preempt("r0", "r1")
    assert explore(cluster).verdict is Verdict.EXHAUSTED


def test_the_state_at_which_a_grown_prompt_resumes_is_cached_after_all() -> None:
    engine = EngineConfig("E", (FULL, Group("mamba", 2)), 9, retention=0)
    cluster = Cluster("c", (engine,), (Job("r0", "ab", 1, parts=("c",)),), sessions=True)
    machine = ModelMachine(cluster)
    machine.take(Submit("E", "r0"))
    answered(machine, "r0")
    assert not machine.state.engine("E").blocks_for((1, "ab"))
    machine.take(Continue("E", "r0"))
    machine.take(Schedule("E"))
    assert machine.state.engine("E").blocks_for((1, "ab"))


def test_parts_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match=r"has no sessions\. Use sessions true"):
        Cluster("c", (EngineConfig("E", (FULL,)),), (Job("r0", "a", parts=("b",)),))
    with pytest.raises(UsageError, match="of job r0 is"):
        Job("r0", "a", parts=("",))
    with pytest.raises(UsageError, match=r"parts: expected `array`, got `str`\. Use a list"):
        from_json({**to_json(SESSIONS), "jobs": [{"name": "r0", "prompt": "a", "parts": "b"}]})


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
    assert _keeps("abcd", now) is kept
    assert _keeps("ab𝚌d", "abcd")
