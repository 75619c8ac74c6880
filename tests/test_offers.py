"""How much of a prompt P prefills, and what is loaded beside a hit."""

import pytest

from kvproof.model.config import Job
from kvproof.model.config.sides import reverse_of
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.reference.transfers import offers
from kvproof.model.state import Transfer
from tests.by_hand import FULL, MAMBA, both, config, on_decode, on_prefill, pair, request, serving

OFFERED = Transfer("r0", "offered", 4, ((1, 2),))


# How much of a prompt P prefills


def test_p_leaves_a_token_to_d_where_a_state_is_handed_over() -> None:
    submitted = on_prefill("abcd")
    assert offers.truncated(config(FULL, MAMBA), submitted).prompt == "abc"
    assert offers.truncated(config(FULL), submitted).prompt == "abcd"


def test_a_prompt_is_shortened_once_and_on_p_only() -> None:
    cfg = config(FULL, MAMBA)
    once = offers.truncated(cfg, on_prefill("abcd"))
    assert offers.truncated(cfg, once) == once
    assert offers.truncated(cfg, on_decode("abcd")) == on_decode("abcd")


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


def test_d_offers_what_it_keeps_of_the_turn_before() -> None:
    asked = on_prefill("abc.e", name="r1")
    jobs = (Job("r0", "abc"), Job("r1", "abc.e", follows="r0"))
    cluster = pair(FULL, jobs=jobs, follow_up_turns=True)
    kept = Transfer(reverse_of("r0"), "offered", 4, ((3, 4),))
    assert offers.loadable(cluster, both(asked, None, kept), asked) == 4


def test_a_preempted_request_of_p_is_shortened_before_it_hits() -> None:
    asked = on_prefill("abcde", preemptions=1)
    state = both(asked)
    keys = {(0, "ab"): 1, (0, "abcd"): 2, (1, "ab"): 3, (1, "abcd"): 4}
    engine = serving(asked, name="P", cached=keys)
    hybrid = pair(FULL, MAMBA)
    found = offers.best_admission(hybrid, hybrid.prefill, state.with_engine(engine), asked)
    assert found == (2, 0)
