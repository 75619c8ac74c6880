"""The connector's decisions: how much of a prompt P prefills, what is loaded beside a hit, which
blocks are offered and asked for, and which of them are paired."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.config import Cluster, Group
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.rules import SPEC
from kvproof.model.reference.transfers import connector
from kvproof.model.state import NULL, Block, Transfer
from tests.by_hand import FULL, MAMBA, WINDOW, both, config, on_decode, on_prefill, pair, request

OFFERED = Transfer("r0", "offered", 4, ((1, 2),))


# How much of a prompt P prefills


def test_p_leaves_a_token_to_d_where_a_state_is_handed_over() -> None:
    submitted = on_prefill("abcd")
    assert connector.truncated(config(FULL, MAMBA), submitted, SPEC).prompt == "abc"
    assert connector.truncated(config(FULL), submitted, SPEC).prompt == "abcd"


def test_a_prompt_is_shortened_once_and_on_p_only() -> None:
    cfg = config(FULL, MAMBA)
    once = connector.truncated(cfg, on_prefill("abcd"), SPEC)
    assert connector.truncated(cfg, once, SPEC) == once
    assert connector.truncated(cfg, on_decode("abcd"), SPEC) == on_decode("abcd")


def test_the_connector_is_asked_again_about_who_was_preempted() -> None:
    cfg = config(FULL, MAMBA)
    assert connector.asked_again(cfg, on_prefill("abcd"), SPEC).prompt == "abcd"
    assert connector.asked_again(cfg, on_prefill("abcd", preemptions=1), SPEC).prompt == "abc"


def test_an_emptied_request_keeps_its_tokens_and_nothing_else() -> None:
    full = request(
        *("abcd", (1,)),
        **{"output": ".", "computed": 5, "hit": 2, "external": 2, "drafts": 1},
        **{"num_cached_blocks": (2,), "shared_prefix_boundary": 4, "states": (3,)},
    )
    assert connector.emptied(full) == request("abcd", output=".")


# What is loaded beside a hit


def test_what_p_offers_is_loadable_until_d_has_begun() -> None:
    asked = on_decode("abcd")
    hybrid = pair(FULL, MAMBA)
    assert connector.loadable(pair(FULL), both(None, asked, OFFERED), asked, SPEC) == 4
    assert connector.loadable(hybrid, both(None, asked, OFFERED), asked, SPEC) == 3
    reading = OFFERED._replace(phase="reading")
    assert connector.loadable(pair(FULL), both(None, asked, reading), asked, SPEC) == 0
    assert connector.loadable(pair(FULL), both(None, asked), asked, SPEC) == 0
    local = request("abcd")
    assert connector.loadable(pair(FULL), both(None, local, OFFERED), local, SPEC) == 0


def test_p_loads_for_follow_up_turns_only() -> None:
    asked = on_prefill("abcd")
    assert connector.loadable(pair(FULL), both(asked, None, OFFERED), asked, SPEC) == 0


def test_all_that_is_offered_beyond_the_hit_is_loaded() -> None:
    asked = on_decode("abcd")
    state = both(None, asked, OFFERED)
    engine = state.engine("D")

    def check(hit: int, external: int) -> None:
        choice = Admit("r0", hit, external)
        connector.check_external(pair(FULL), state, engine, asked, choice, SPEC)

    check(0, 4)
    check(2, 2)
    for hit, external, rest in (0, 3, 4), (2, 4, 2), (0, 0, 4):
        with pytest.raises(NotAllowed, match=f"loads {external} tokens where {rest} are offered"):
            check(hit, external)


def best(cluster: Cluster, cached: dict[tuple[int, str], int], prompt: str = "abcdef") -> Any:
    """The hit and the external tokens of a request to which P offers its whole prompt."""
    asked = on_decode(prompt)
    state = both(None, asked, OFFERED)
    engine = state.engine("D")._replace(cached=tuple((k, (b,)) for k, b in sorted(cached.items())))
    return connector.best_admission(cluster, cluster.decode, state, engine, asked, SPEC)


def test_a_hit_comes_first_and_a_load_brings_the_rest() -> None:
    assert best(pair(FULL), {}) == (0, 6)
    assert best(pair(FULL), {(0, "ab"): 1}) == (2, 4)
    assert best(pair(FULL, prefix_caching=False), {(0, "ab"): 1}) == (0, 6)


def test_before_a_load_full_attention_alone_needs_to_hit() -> None:
    attention = {(0, "ab"): 1, (0, "abcd"): 2}
    assert best(pair(FULL, MAMBA), attention) == (4, 1)
    assert best(pair(FULL, MAMBA), attention | {(1, "ab"): 3}) == (4, 1)


def test_a_token_at_least_is_left_to_the_load_for_the_states_come_with_it() -> None:
    attention = {(0, "ab"): 1, (0, "abcd"): 2}
    assert best(pair(FULL, MAMBA), attention, "abcde") == (2, 2)
    held = attention | {(1, "abcd"): 3}
    assert best(pair(FULL, MAMBA), held, "abcde") == (4, 0)


# The blocks that P offers


def offered(*groups: Group, tables: tuple[tuple[int, ...], ...], computed: int = 6, **options: Any):
    held = on_prefill("abcdef", *tables, computed=computed)
    return connector.offered_lists(config(*groups, **options), held, SPEC)


def test_attention_is_offered_up_to_the_computed_tokens() -> None:
    assert offered(FULL, tables=((1, 2, 3, 4),)) == ((1, 2, 3),)
    assert offered(FULL, tables=((1, 2, 3, 4),), computed=5) == ((1, 2, 3),)
    assert offered(FULL, tables=((1, 2, 3, 4),), computed=4) == ((1, 2),)


def test_of_a_window_the_tail_is_offered() -> None:
    """A window of 3 tokens is two blocks, and one for its unaligned start."""
    table = (NULL, 2, 3, 4, 5)
    assert offered(FULL, WINDOW, tables=((), table), computed=10)[1] == (3, 4, 5)
    assert offered(FULL, WINDOW, tables=((), table), computed=6)[1] == (NULL, 2, 3)


def test_of_a_state_the_slot_is_offered_that_holds_it() -> None:
    assert offered(FULL, MAMBA, tables=((), (NULL, 5, 6)))[1] == (6,)
    wide = Group("mamba", 4)
    scratch = offered(Group("full", 4), wide, tables=((), (NULL, 5, 6, 7)), drafts=2)
    assert scratch[1] == (5,)


# The blocks that a load is to fill


def fresh(*groups: Group, tables: tuple[tuple[int, ...], ...], external: int = 2, **options: Any):
    held = on_decode("abcdefgh", *tables, external=external)
    engine = both(None, held).engine("D")
    engine = pool.with_blocks(engine, {1: Block(1, (0, "ab"))})
    return connector.fresh_lists(config(*groups, **options), engine, held, SPEC)


def test_blocks_that_are_hit_and_null_are_not_filled() -> None:
    assert fresh(FULL, tables=((NULL, 1, 2, 3),)) == ((2, 3),)
    assert fresh(FULL, tables=((NULL, 1, 2, 3),), external=0) == ((),)


def test_of_a_window_the_tail_and_of_a_state_its_slot_are_filled() -> None:
    assert fresh(WINDOW, tables=((2, 3, 4, 5),)) == ((3, 4, 5),)
    assert fresh(MAMBA, tables=((NULL, 2, 3),)) == ((3,),)
    assert fresh(Group("mamba", 4), tables=((2, 3, 4),), drafts=1) == ((3,),)
    assert fresh(MAMBA, tables=((NULL, 1),)) == ((),)


# Pairs


def pairs(cluster: Cluster, table: tuple[int, ...], local: Any, remote: Any, tokens: int) -> Any:
    held = on_decode("abcdefgh", *(table,) * len(cluster.decode.groups), external=2)
    transfer = Transfer("r0", "reading", tokens, remote, local)
    return connector.paired(cluster, held, transfer, SPEC).pairs


def test_what_d_lacks_is_paired_with_the_same_positions_of_p() -> None:
    assert pairs(pair(FULL), (1, 2, 3), ((1, 2, 3),), ((4, 5, 6),), 6) == (((1, 2, 3), (4, 5, 6)),)
    assert pairs(pair(FULL), (1, 2, 3), ((3,),), ((4, 5, 6),), 6) == (((3,), (6,)),)


def test_the_longer_list_is_trimmed_at_both_ends() -> None:
    assert pairs(pair(FULL), (1, 2, 3), ((2, 3),), ((4, 5),), 4) == (((2,), (5,)),)
    assert pairs(pair(WINDOW), (1, 2, 3), ((1, 2, 3),), ((5, 6),), 6) == (((2, 3), (5, 6)),)


def test_a_state_is_paired_with_the_slot_that_holds_it() -> None:
    hybrid = pair(FULL, MAMBA)
    assert pairs(hybrid, (1, 2), ((), (2,)), ((), (4, 5)), 4)[1] == ((2,), (5,))
    assert pairs(hybrid, (1, 2), ((), ()), ((), (4, 5)), 4)[1] == ((), ())


def unequal(prefill: int, decode: int) -> Cluster:
    """P and D with kernel blocks of 2 tokens, so many of them to a block."""
    made = pair(FULL)
    p, d = (
        dataclasses.replace(e, groups=(Group("full", 2 * n),), physical_per_logical=n)
        for e, n in zip(made.engines, (prefill, decode), strict=True)
    )
    return dataclasses.replace(made, engines=(p, d))


def test_blocks_of_other_sizes_are_paired_kernel_block_by_kernel_block() -> None:
    assert pairs(unequal(2, 1), (1, 2, 3), ((1, 2, 3),), ((4, 5),), 6) == (((1, 2, 3), (8, 9, 10)),)
    assert pairs(unequal(1, 2), (1, 2), ((1, 2),), ((4, 5, 6),), 6) == (((2, 3, 4), (4, 5, 6)),)
    assert pairs(unequal(2, 1), (1, 2, 3), ((3,),), ((4, 5),), 6) == (((3,), (10,)),)


@given(st.integers(1, 8), st.integers(0, 4), st.integers(1, 2), st.integers(1, 2))
def test_pairs_are_equally_long_and_at_equal_positions(
    tokens: int, hit: int, prefill: int, decode: int
) -> None:
    cluster = unequal(prefill, decode)
    table = tuple(range(1, -(-tokens // (2 * decode)) + 1))
    remote = tuple(range(11, 11 + -(-tokens // (2 * prefill))))
    ((ours, theirs),) = pairs(cluster, table, (table[hit:],), (remote,), tokens)
    places = [table.index(b // decode) * decode + b % decode for b in ours]
    assert places == [remote.index(b // prefill) * prefill + b % prefill for b in theirs]
    lacking = range(len(table[:hit]) * decode, -(-tokens // 2))
    assert set(lacking) <= set(places)
