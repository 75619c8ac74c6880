"""Transfers in the reference: what is offered, paired and loaded, and every way it goes wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproof.model.config import Cluster, Group
from kvproof.model.environment import disturbances
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.transfers import loads, offers, pull, request_ends
from kvproof.model.state import Request, State, Transfer
from tests.by_hand import FULL, MAMBA, both, on_decode, on_prefill, pair, request
from tests.planted import under

# Offers

OFFERED = Transfer("r0", "offered", 4, ((1, 2),))


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


# Pairs


def pairs(cluster: Cluster, table: tuple[int, ...], local: Any, remote: Any, tokens: int) -> Any:
    held = on_decode("abcdefgh", *(table,) * len(cluster.decode.groups), external=2)
    transfer = Transfer("r0", "reading", tokens, remote, local)
    return loads.paired(cluster, held, transfer).pairs


def unequal(prefill: int, decode: int) -> Cluster:
    """P and D with kernel blocks of 2 tokens, so many of them to a block."""
    made = pair(FULL)
    p, d = (
        replace(e, groups=(Group("full", 2 * n),), physical_per_logical=n)
        for e, n in zip(made.engines, (prefill, decode), strict=True)
    )
    return replace(made, engines=(p, d))


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


# From an offer to the end of a load

PAIR = pair(FULL)
SENT = on_prefill("abcd", (1, 2), status="sending", output=".", computed=4)
LOADS = on_decode("abcd", (3, 4), external=4, computed=4, status="loading")
ASKS = LOADS._replace(status="waiting")
READING = OFFERED._replace(phase="reading", local=((3, 4),), pairs=(((3, 4), (1, 2)),))
RELEASING = OFFERED._replace(phase="releasing")


def statuses(state: State) -> dict[str, str]:
    """The status of each request, by engine."""
    return {engine.name: r.status for engine in state.engines for r in engine.requests}


def test_nobody_loads_what_is_not_offered() -> None:
    with pytest.raises(NotAllowed, match="r0 loads but nothing is offered"):
        loads.start_load(PAIR, both(None, ASKS), "r0")


@pytest.mark.parametrize(("ratio", "dies"), [(1, False), (2, True)])
def test_a_list_that_is_too_long_for_the_worker_is_the_death_of_d(ratio: int, dies: bool) -> None:
    """Lists are compared by their kernel blocks: P's two blocks have two, and D's two blocks twice
    its ratio. The reference takes lists of any length."""
    p, d = PAIR.engines
    wide = replace(d, groups=(Group("full", 2 * ratio),), physical_per_logical=ratio)
    cluster = replace(PAIR, engines=(p, wide))
    state = both(SENT, ASKS, OFFERED)
    assert not loads.start_load(cluster, state, "r0").engine("D").dead
    with planted(FAULTS["longer_list_dies_across_ratios"]):
        after = loads.start_load(cluster, state, "r0")
    assert bool(after.engine("D").dead) is dies


@pytest.mark.parametrize("transfers", [(READING,), (RELEASING,), ()])
def test_a_transfer_under_way_is_not_declined(transfers: tuple[Transfer, ...]) -> None:
    state = both(SENT, None, *transfers)
    assert loads.declined(PAIR, state, "r0") == state


def test_who_loads_keeps_its_blocks_until_the_load_has_ended() -> None:
    state = request_ends.leave(PAIR, PAIR.decode, both(SENT, LOADS, READING), LOADS)
    assert statuses(state) == {"P": "sending", "D": "aborted"}
    assert state.engine("D").request("r0").tables == ((3, 4),)
    assert state.phase("r0") == "reading"
    assert state.ended == (("D", "r0"),)


def test_what_has_not_begun_cannot_end() -> None:
    for transfers in (), (OFFERED,):
        with pytest.raises(NotAllowed, match="has no transfer that could end"):
            request_ends.transfer_done(PAIR, both(SENT, ASKS, *transfers), "r0")
    unfinished = Transfer("r0", "releasing", 0, ())
    with pytest.raises(NotAllowed, match="is not finished on P"):
        request_ends.transfer_done(PAIR, both(None, ASKS, unfinished), "r0")


def test_a_read_that_is_refused_is_no_failure_of_the_network() -> None:
    refused = Transfer("r0 reverse", "refused", 4, ((3, 4),))
    state = pull.transfer_failed(PAIR, both(None, None, refused), "r0 reverse")
    assert state.transfer("r0 reverse") == Transfer("r0 reverse", "closed", 4, ())
    assert state.failures == 0


@pytest.mark.parametrize(
    ("status", "external", "before"),
    [
        ("running", 4, True),
        ("loaded", 4, True),
        ("running", 0, False),
        ("loading", 4, False),
        ("aborted", 4, False),
        ("sending", 4, False),
    ],
)
def test_a_transfer_was_reported_to_who_has_loaded_and_loads_no_more(
    status: str, external: int, before: bool
) -> None:
    state = both(None, LOADS._replace(status=status, external=external))
    assert disturbances.reported_before(state, state.engine("D"), "r0") is before


@pytest.mark.parametrize(
    ("on_d", "transfers", "why"),
    [
        (LOADS, (READING,), "r0 has no lease that could end"),
        (LOADS, (RELEASING,), "r0 has no lease that could end"),
        (LOADS, (), "r0 has no lease that could end"),
        (ASKS, (OFFERED,), "r0 waits on D, which renews its lease"),
    ],
)
def test_only_a_lease_that_nobody_renews_ends(
    on_d: Request, transfers: tuple[Transfer, ...], why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        pull.lease_expired(PAIR, both(SENT, on_d, *transfers), "r0")
    assert pull.renewed(READING)
    assert not pull.renewed(OFFERED)


def test_where_nobody_renews_it_the_blocks_are_gone_under_the_reader() -> None:
    never = [FAULTS["lease_ends_under_reader"]]
    state = under(never, pull.lease_expired, PAIR, both(SENT, LOADS, READING), "r0")
    assert statuses(state) == {"D": "loading"}
    assert state.transfers == (READING,)
