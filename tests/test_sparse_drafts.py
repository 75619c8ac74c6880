"""Drafts under sparse retention: a mistake there is found, and narrower blocks of a drafter are
refused."""

import pytest

from kvproof.model.arithmetic import counts
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.verdict import Verdict
from tests.planted import under


@pytest.mark.parametrize(
    ("name", "drafted"), [("sparse-drafts", (0, 0)), ("sparse-window-drafts", (2, 0))]
)
def test_where_a_drafter_is_not_thought_of_a_repeated_prompt_finds_nothing(
    name: str, drafted: tuple[int, int]
) -> None:
    right = counts.is_retained

    def is_retained(*args: int) -> object:
        return right(*args[:7], *drafted)

    faults = {"arithmetic.counts:is_retained": is_retained}
    outcome = under(faults, explore, CLUSTERS[name])
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding.invariant == "repeated_prompt_hits"


def test_a_drafter_in_narrower_blocks_is_refused() -> None:
    narrow, wide = (
        Group("window", 2, window=3, eagle=True),
        Group("window", 4, window=3, eagle=True),
    )
    for groups in ((Group("full", 4), narrow), (Group("full", 2, eagle=True), wide)):
        with pytest.raises(UsageError, match=r"sparse retention and EAGLE.*Use one block_size"):
            EngineConfig("E", groups, 12, retention=0, drafts=1)
