"""Sessions: prompts that come in parts, and what is kept between them."""

import pytest

from kvproof.invariants.guards_of_requests import _keeps
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.config_json import from_json, to_json
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS

FULL = Group("full", 2)
SESSIONS = CLUSTERS["sessions"]


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
