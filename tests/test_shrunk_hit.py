"""What passes for the known `shrunk_hit_is_not_matched_again`, and what does not."""

import pytest

from kvproof.live.known.hits import shrunk_hit_is_not_matched_again
from kvproof.model.because import About
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import Schedule
from kvproof.model.state import State
from kvproof.model.step import Admission, Effects, Step

GROUPS = (Group("full", 2, eagle=True), Group("window", 2, 2, eagle=True), Group("mamba", 2))
CLUSTER = Cluster("c", (EngineConfig("E", GROUPS, 20, drafts=1),))
PROMPT = "abcdefghi"


@pytest.mark.parametrize(
    ("ends", "known"),
    [
        ((4, 8), False),  # the longest that it has: a drafter's block was not asked for
        ((4,), False),
        ((2, 6, 8), False),  # a block of the hit itself is missing
        ((4, 6, 8), False),  # nothing is missing
        ((4, 8, 10), True),
    ],
)
def test_only_a_window_that_matched_a_longer_hit(ends: tuple[int, ...], known: bool) -> None:
    """A hit of 4 tokens; the window has the blocks that end there, and the others have all."""
    cached = {(group, PROMPT[:end]) for group in (0, 2) for end in range(2, 11, 2)}
    cached |= {(1, (PROMPT + "jk")[:end]) for end in ends}
    keys = tuple((key, (1,)) for key in sorted(cached))
    admission = Admission("E", "r0", PROMPT + "jk", "local", 4, 0, keys)
    step = Step(State((), ()), Schedule("E"), Effects(admissions=(admission,)), State((), ()))
    about = About(engine="E", request="r0", group=1)
    assert shrunk_hit_is_not_matched_again.present(CLUSTER, step, about) is known
