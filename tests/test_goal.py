"""Who is excused where a read is lost: nobody who has room."""

import pytest

from kvproof.model import termination
from kvproof.model.phases import Phase
from kvproof.model.state import LOADING, SENDING, WAITING, Block, Engine, Request, State, Transfer


def beside_a_lost_read(free: int, status: str = WAITING) -> State:
    """D with a load of two tokens whose end never comes, in a block, and a request of two."""
    lost = Request("r0", LOADING, "ab", 2, 1, tables=((1,),))
    other = Request("r1", status, "xy", 2, 1)
    blocks = (Block(),) * (free + 2)
    engine = Engine("D", blocks, tuple(range(2, free + 2)), requests=(lost, other))
    return State((engine,), (Transfer("r0", Phase.LOST, 2, ((1,),)),))


@pytest.mark.parametrize(("free", "excused"), [(0, True), (3, True), (4, False), (9, False)])
def test_only_a_request_that_may_lack_blocks_is_excused(free: int, excused: bool) -> None:
    assert termination.over(beside_a_lost_read(free)) is excused


def test_a_request_that_runs_is_not_excused() -> None:
    assert termination.waiting(beside_a_lost_read(0, "running")) == "r1 on D (running)"


def test_without_a_lost_read_nobody_is_excused() -> None:
    state = beside_a_lost_read(0)._replace(transfers=())
    assert [request.id for _, request in termination.unfinished(state)] == ["r0", "r1"]


@pytest.mark.parametrize(("free", "excused"), [(0, True), (3, True), (4, False)])
def test_who_waits_on_p_for_blocks_that_it_keeps_for_one_excused_is_excused(
    free: int, excused: bool
) -> None:
    state = beside_a_lost_read(0)
    kept = Request("r1", SENDING, "xy", 2, 1, tables=((1,),))
    third = Request("r2", WAITING, "uv", 2, 1)
    blocks = (Block(),) * (free + 2)
    p = Engine("P", blocks, tuple(range(2, free + 2)), requests=(kept, third))
    assert termination.over(state._replace(engines=(p, *state.engines))) is excused
