"""Reads that fail, ends that nobody reports, reports that nobody waits for, and leases that end."""

from typing import Any

import pytest

from kvproof.model.environment import disturbances
from kvproof.model.errors import NotAllowed
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.transfers import pull
from kvproof.model.state import State, Transfer
from tests.by_hand import FULL, both, on_decode, on_prefill, pair
from tests.planted import Mistakes, under

PAIR = pair(FULL, failures=1)
SENT = on_prefill("abcd", (1, 2), status="sending", output=".", computed=4)
LOADS = on_decode("abcd", (3, 4), external=4, computed=4, status="loading")
OFFERED = Transfer("r0", "offered", 4, ((1, 2),))
READING = OFFERED._replace(phase="reading", local=((3, 4),), pairs=(((3, 4), (1, 2)),))
BACK = Transfer("r0 reverse", "offered", 4, ((3, 4),))


def in_phase(phase: str) -> Transfer:
    return OFFERED._replace(phase=phase)


def statuses(state: State) -> dict[str, str]:
    """The status of each request, by engine."""
    return {engine.name: r.status for engine in state.engines for r in engine.requests}


# A read fails


def failed(state: State, name: str = "r0", **options: Any) -> State:
    return pull.transfer_failed(pair(FULL, **options), state, name)


def test_a_read_that_is_refused_is_no_failure_of_the_network() -> None:
    refused = BACK._replace(phase="refused")
    state = failed(both(None, None, refused), "r0 reverse")
    assert state.transfer("r0 reverse") == Transfer("r0 reverse", "closed", 4, ())
    assert state.failures == 0


# A report that nobody waits for


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


# Leases


def expired(state: State, name: str = "r0", faults: Mistakes = ()) -> State:
    return under(faults, pull.lease_expired, PAIR, state, name)


def test_who_reads_or_waits_on_d_renews_the_lease() -> None:
    with pytest.raises(NotAllowed, match="r0 has no lease that could end"):
        expired(both(SENT, LOADS, READING))
    with pytest.raises(NotAllowed, match="r0 waits on D, which renews its lease"):
        expired(both(SENT, LOADS._replace(status="waiting"), OFFERED))
    assert pull.renewed(READING)
    assert not pull.renewed(OFFERED)


def test_where_nobody_renews_it_the_blocks_are_gone_under_the_reader() -> None:
    never = [FAULTS["lease_ends_under_reader"]]
    state = expired(both(SENT, LOADS, READING), faults=never)
    assert statuses(state) == {"D": "loading"}
    assert state.transfers == (READING,)


@pytest.mark.parametrize("transfers", [(), (in_phase("releasing"),)])
def test_only_what_is_leased_can_expire(transfers: tuple[Transfer, ...]) -> None:
    with pytest.raises(NotAllowed, match="r0 has no lease that could end"):
        expired(both(SENT, LOADS, *transfers))


# What may happen next
