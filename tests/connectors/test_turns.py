"""A conversation goes on: the next prompt has the answer in it, and loads what of it was stored."""

import pytest

from kvproof.model.plans.connector import STORE_ANSWERS, Options, SubmitRequest
from tests.connectors.played import conversation

OFFLOADED, SAVED = ((option,) for option in STORE_ANSWERS)
STORES = [("offloading-roomy", OFFLOADED), ("mooncake-store", SAVED), ("simple-cpu-roomy", ())]


def test_a_later_turn_has_the_answer_in_it() -> None:
    assert SubmitRequest(0, 8, turn=3, answer=2).prompt == "abc..fgh"
    assert SubmitRequest(0, 4, turn=3, answer=2).prompt == "abc."


@pytest.mark.parametrize(("name", "options"), STORES)
@pytest.mark.parametrize(("answered", "blocks"), [(2, 3), (3, 4), (6, 4), (7, 5)])
def test_the_computed_tokens_of_an_answer_are_loaded(
    name: str, options: Options, answered: int, blocks: int
) -> None:
    """The last token of an answer is not computed."""
    result = conversation(name, options, answered)
    assert result.findings == ()
    assert result.judged["promised tokens"] == 2 * 4 * blocks
    assert result.judged["prompts that came again"] == 1
