"""What of an offer is loaded beside a hit."""

import pytest

from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.reference.transfers import offers
from kvproof.model.state import Transfer
from tests.by_hand import FULL, MAMBA, both, on_decode, pair, request

OFFERED = Transfer("r0", "offered", 4, ((1, 2),))


# What is loaded beside a hit


def test_what_p_offers_is_loadable_until_d_has_begun() -> None:
    asked = on_decode("abcd")
    hybrid = pair(FULL, MAMBA)
    assert offers.loadable(pair(FULL), both(None, asked, OFFERED), asked) == 4
    assert offers.loadable(hybrid, both(None, asked, OFFERED), asked) == 3
    reading = OFFERED._replace(phase="reading")
    assert offers.loadable(pair(FULL), both(None, asked, reading), asked) == 0
    assert offers.loadable(pair(FULL), both(None, asked), asked) == 0
    local = request("abcd")
    assert offers.loadable(pair(FULL), both(None, local, OFFERED), local) == 0


def test_all_that_is_offered_beyond_the_hit_is_loaded() -> None:
    asked = on_decode("abcd")
    state = both(None, asked, OFFERED)

    def check(hit: int, external: int) -> None:
        choice = Admit("r0", hit, external)
        offers.check_external(pair(FULL), state, asked, choice)

    check(0, 4)
    check(2, 2)
    check(4, 0)
    for hit, external, rest in (0, 3, 4), (2, 4, 2), (0, 0, 4):
        with pytest.raises(NotAllowed, match=f"loads {external} tokens where {rest} are offered"):
            check(hit, external)
