"""Which hits a campaign calls new: those that no earlier prompt with the same beginning had."""

from collections.abc import Sequence

import pytest

from kvproof.campaign.behaviours import hits
from kvproof.model.events import Schedule
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.state import State
from kvproof.model.step import Admission, Effects, Step

STATE = State(())


def admitted(request: str, tokens: str, hit: int) -> Step:
    """A step that admits one request."""
    admission = Admission("E", request, tokens, "local", hit, 0, ())
    return Step(STATE, Schedule("E"), Effects(admissions=(admission,)), STATE)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("r0", "aabb", 0), ("r1", "aabb", 2)], ["none: a prompt hits the second time"]),
        ([("r0", "aabb", 0), ("r1", "aacc", 2)], ["none: a beginning hits the second time"]),
        ([("r0", "aabb", 0), ("r1", "aacc", 0)], []),
        (
            [("r0", "aabb", 0), ("r1", "aacc", 0), ("r2", "aaee", 2)],
            ["none: a beginning hits the third or a later time"],
        ),
        (
            [("r0", "aabb", 0), ("r1", "aacc", 2), ("r2", "aaee", 2)],
            ["none: a beginning hits the second time"],
        ),
        ([("r0", "aabb", 0), ("r0", "aabb", 2)], []),
    ],
)
def test_by_hand(steps: Sequence[tuple[str, str, int]], words: Sequence[str]) -> None:
    run = [admitted(*each) for each in steps]
    assert list(hits(CLUSTERS["full"], run)) == words


def test_features_that_decide_what_is_stored_are_named() -> None:
    run = [admitted("r0", "aabb", 0), admitted("r1", "aabb", 2)]
    found = list(hits(LIVE_CLUSTERS["partial-eagle"], run))
    features = ("drafts", "eagle", "partial_block_hits")
    assert found == [f"{feature}: a prompt hits the second time" for feature in features]
