"""The life of a transfer: from P's offer over D's load to its end, and every way in which that goes
wrong. Whoever frees blocks does it once, and not while somebody writes into them."""

from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model.config import Group
from kvproof.model.errors import NotAllowed
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.transfers import loads, request_ends, transfer_ends
from kvproof.model.state import State, Transfer
from tests.by_hand import FULL, both, on_decode, on_prefill, pair

PAIR = pair(FULL)
SENT = on_prefill("abcd", (1, 2), status="sending", output=".", computed=4)
ASKS = on_decode("abcd", (3, 4), external=4, computed=4)
OFFERED = Transfer("r0", "offered", 4, ((1, 2),))
READING = OFFERED._replace(phase="reading", local=((3, 4),), pairs=(((3, 4), (1, 2)),))
LOADS = ASKS._replace(status="loading")


def phase(state: State, name: str = "r0") -> str | None:
    transfer = state.transfer(name)
    return transfer.phase if transfer else None


def statuses(state: State) -> dict[str, str]:
    """The status of each request, by engine."""
    return {engine.name: r.status for engine in state.engines for r in engine.requests}


# D begins to load


def started(state: State, cluster: Any = PAIR) -> State:
    return loads.start_load(cluster, state, "r0")


def test_nobody_loads_what_is_not_offered() -> None:
    with pytest.raises(NotAllowed, match="r0 loads but nothing is offered"):
        started(both(None, ASKS))


@pytest.mark.parametrize(("ratio", "dies"), [(1, False), (2, True)])
def test_a_list_that_is_too_long_for_the_worker_is_the_death_of_d(ratio: int, dies: bool) -> None:
    """Lists are compared by their kernel blocks: P's two blocks have two, and D's two blocks twice
    its ratio. The reference takes lists of any length."""
    p, d = PAIR.engines
    wide = replace(d, groups=(Group("full", 2 * ratio),), physical_per_logical=ratio)
    cluster = replace(PAIR, engines=(p, wide))
    state = both(SENT, ASKS, OFFERED)
    assert not loads.start_load(cluster, state, "r0").engine("D").dead
    fault = FAULTS["longer_list_dies_across_ratios"]
    with planted(fault):
        after = loads.start_load(cluster, state, "r0")
    assert bool(after.engine("D").dead) is dies


# D needs nothing


def declined(state: State, cluster: Any = PAIR, name: str = "r0") -> State:
    return loads.declined(cluster, state, name)


@pytest.mark.parametrize("transfer", [READING, OFFERED._replace(phase="releasing")])
def test_a_transfer_under_way_is_not_declined(transfer: Transfer) -> None:
    state = both(SENT, None, transfer)
    assert declined(state) == state
    assert declined(both(SENT)) == both(SENT)


# A request ends before its time


def left(state: State, name: str = "D", cluster: Any = PAIR) -> State:
    (request,) = state.engine(name).requests
    return request_ends.leave(cluster, cluster.engine(name), state, request)


def test_who_loads_keeps_its_blocks_until_the_load_has_ended() -> None:
    state = left(both(SENT, LOADS, READING))
    assert statuses(state) == {"P": "sending", "D": "aborted"}
    assert state.engine("D").request("r0").tables == ((3, 4),)
    assert phase(state) == "reading"
    assert state.ended == (("D", "r0"),)


# The transfer has ended


def test_what_has_not_begun_cannot_end() -> None:
    for transfers in (), (OFFERED,):
        with pytest.raises(NotAllowed, match="has no transfer that could end"):
            transfer_ends.transfer_done(PAIR, both(SENT, ASKS, *transfers), "r0")
    unfinished = Transfer("r0", "releasing", 0, ())
    with pytest.raises(NotAllowed, match="is not finished on P"):
        transfer_ends.transfer_done(PAIR, both(None, ASKS, unfinished), "r0")
