"""The life of a transfer: from P's offer over D's load to its end, and every way in which that goes
wrong. Whoever frees blocks does it once, and not while somebody writes into them."""

from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model.config import Group, Job
from kvproof.model.environment import turns
from kvproof.model.errors import NotAllowed
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.transfers import loads, request_ends, transfer_ends
from kvproof.model.state import COUNTS, VOID, Content, Engine, Flight, Request, State, Transfer
from tests.by_hand import EAGLE, FULL, WINDOW, both, on_decode, on_prefill, pair

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


def test_blocks_are_paired_and_read_at_once_where_p_has_finished() -> None:
    state = started(both(SENT, ASKS, OFFERED))
    assert state.transfer("r0") == READING
    assert statuses(state) == {"P": "sending", "D": "loading"}
    assert not state.engine("D").dead


def test_they_are_registered_where_p_has_yet_to_finish() -> None:
    state = started(both(None, ASKS, Transfer("r0", "awaited", 0, ())), pair(FULL, transfer="push"))
    assert state.transfer("r0") == Transfer("r0", "registered", 0, (), ((3, 4),))
    assert statuses(state) == {"D": "loading"}


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


@pytest.mark.parametrize(("held", "asked"), [("offered", "reading"), ("expired", "refused")])
def test_p_asks_for_what_d_keeps_though_its_lease_may_have_ended(held: str, asked: str) -> None:
    jobs = (Job("r0", "abcd"), Job("r1", "abcd.e", follows="r0"))
    cluster = pair(FULL, jobs=jobs, follow_up_turns=True)
    back = turns.reverse_of("r0")
    asks = on_prefill("abcd.e", (1, 2), name="r1", external=4, computed=4)
    kept = Transfer(back, held, 4, ((3, 4),) if held == "offered" else ())
    state = loads.start_load(cluster, both(asks, None, kept), back)
    assert (phase(state, back), statuses(state)) == (asked, {"P": "loading"})


# D needs nothing


def declined(state: State, cluster: Any = PAIR, name: str = "r0") -> State:
    return loads.declined(cluster, state, name)


def test_p_is_only_told_where_nothing_is_loaded() -> None:
    assert phase(declined(both(SENT, None, OFFERED))) == "releasing"
    hits = ASKS._replace(external=0)
    told = declined(both(SENT, hits, OFFERED)).transfer("r0")
    assert told == OFFERED._replace(phase="releasing", local=((),), pairs=(((), ()),))


def test_where_p_pushes_it_gets_a_report() -> None:
    hits = ASKS._replace(external=0)
    state = declined(both(SENT, hits, OFFERED), pair(FULL, transfer="push"))
    assert state.transfer("r0") == OFFERED._replace(phase="releasing")


@pytest.mark.parametrize("transfer", [READING, OFFERED._replace(phase="releasing")])
def test_a_transfer_under_way_is_not_declined(transfer: Transfer) -> None:
    state = both(SENT, None, transfer)
    assert declined(state) == state
    assert declined(both(SENT)) == both(SENT)


def test_what_d_kept_until_its_lease_ended_is_over_when_p_needs_it_no_more() -> None:
    kept = Transfer("r0 reverse", "expired", 4, ())
    assert phase(declined(both(None, None, kept), name="r0 reverse"), "r0 reverse") == "closed"


# A request has all its tokens


def finished(cluster: Any, state: State, name: str, **options: Any) -> State:
    cfg = cluster.engine(name)
    (request,) = state.engine(name).requests
    return request_ends.finish(cfg, state, request, **options)


def running(request: Request) -> Request:
    return request._replace(status="running")


def test_on_p_the_blocks_stay_and_are_offered() -> None:
    state = finished(PAIR, both(running(SENT)), "P")
    assert state.transfer("r0") == OFFERED
    assert statuses(state) == {"P": "sending"}
    assert state.engine("P").running == ()
    assert state.ended == (("P", "r0"),)


def test_a_window_keeps_what_the_token_needs_at_which_d_resumes() -> None:
    """D loads 6 tokens and computes the sixth again, which sees the fourth and the fifth."""
    held = running(on_prefill("abcdef", (1, 2, 3), (4, 5, 6), output=".", computed=6))
    state = finished(pair(FULL, WINDOW), both(held), "P")
    assert state.engine("P").request("r0").tables == ((1, 2, 3), (0, 5, 6))


def test_drafts_and_their_states_are_not_handed_over() -> None:
    begun = {"drafts": 1, "states": (0,), "output": "..", "computed": 7, "tables": ((1, 2, 3, 4),)}
    state = finished(pair(EAGLE, drafts=1), both(running(SENT)._replace(**begun)), "P")
    kept = state.engine("P").request("r0")
    assert (kept.drafts, kept.states) == (0, ())
    assert state.transfer("r0") == Transfer("r0", "offered", 6, ((1, 2, 3),))


def test_d_was_first_and_has_registered() -> None:
    early = Transfer("r0", "registered", 0, (), ((3, 4),))
    state = finished(pair(FULL, transfer="push"), both(running(SENT), LOADS, early), "P")
    assert state.transfer("r0") == early._replace(tokens=4, remote=((1, 2),))
    waited = Transfer("r0", "awaited", 0, ())
    state = finished(pair(FULL, transfer="push"), both(running(SENT), ASKS, waited), "P")
    assert state.transfer("r0") == OFFERED


def test_on_d_all_comes_free() -> None:
    state = finished(PAIR, both(None, running(ASKS)), "D")
    assert state.engine("D").requests == ()
    assert state.engine("D").free == (4, 3, 1, 2, 5, 6, 7)
    assert (state.transfers, state.ended) == ((), (("D", "r0"),))


def test_on_d_it_stays_for_the_next_turn() -> None:
    answered = running(ASKS)._replace(output="..", computed=5, tables=((3, 4, 5),))
    state = finished(PAIR, both(None, answered), "D", keeps=True)
    assert state.transfer("r0 reverse") == Transfer("r0 reverse", "offered", 5, ((3, 4, 5),))
    assert statuses(state) == {"D": "sending"}


def test_of_a_window_d_keeps_what_the_tokens_handed_over_need() -> None:
    """A draft beyond the answer was computed, and the fourth token is needed without it."""
    held = on_decode("abcd", (1, 2, 3), (4, 5, 6), output=".", computed=6)
    state = finished(pair(FULL, WINDOW), both(None, running(held)), "D", keeps=True)
    assert state.engine("D").request("r0").tables == ((1, 2, 3), (0, 5, 6))
    gone = finished(pair(FULL, WINDOW), both(None, running(held)), "D")
    assert gone.engine("D").free == (6, 3, 2, 1, 5, 4, 7)


def in_flight(state: State, name: str) -> State:
    engine = state.engine(name)
    return state.with_engine(engine._replace(steps=((Flight("r0", 1, True),),)))


def fates(engine: Engine) -> list[str]:
    return [flight.fate for step in engine.steps for flight in step]


def test_what_a_step_in_flight_still_brings_is_thrown_away() -> None:
    begun = in_flight(both(None, running(ASKS)), "D")
    assert fates(begun.engine("D")) == [COUNTS]
    assert fates(finished(PAIR, begun, "D").engine("D")) == [VOID]
    assert fates(left(begun).engine("D")) == [VOID]
    assert finished(PAIR, begun, "D").engine("D").deferred == ((1, (3, 4)),)


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


def test_who_waits_on_d_lets_go_and_p_is_told() -> None:
    state = left(both(SENT, ASKS, OFFERED))
    assert statuses(state) == {"P": "sending"}
    assert state.engine("D").free == (4, 3, 1, 2, 5, 6, 7)
    assert phase(state) == "releasing"


def test_what_is_left_behind_comes_free_first_and_nothing_under_a_load() -> None:
    held = on_decode("abcdef", (1, 2, 3), (4, 5, 6), computed=6)
    windowed = pair(FULL, WINDOW)
    assert left(both(None, held), cluster=windowed).engine("D").free == (6, 3, 2, 1, 5, 4, 7)
    loading = left(both(None, held._replace(status="loading")), cluster=windowed)
    assert loading.engine("D").request("r0").tables == held.tables


def test_who_leaves_p_tells_nobody() -> None:
    state = left(both(running(SENT), None, OFFERED), "P")
    assert (statuses(state), phase(state)) == ({}, "offered")


# The transfer has ended


def test_d_has_the_contents_and_p_lets_go() -> None:
    begun = both(SENT, LOADS, READING)
    held = (None, Content(0, ("a", "ab")), Content(0, ("abc", "abcd")), *[None] * 5)
    begun = begun.with_engine(begun.engine("P")._replace(memory=held))
    state = transfer_ends.transfer_done(PAIR, begun, "r0")
    assert state.engine("D").memory[3:5] == held[1:3]
    assert statuses(state) == {"D": "loaded"}
    assert state.engine("P").free == (2, 1, 3, 4, 5, 6, 7)
    assert state.transfers == ()


def test_an_aborted_reader_lets_go_now() -> None:
    aborted = LOADS._replace(status="aborted")
    state = transfer_ends.transfer_done(PAIR, both(SENT, aborted, READING), "r0")
    assert statuses(state) == {}
    assert state.engine("D").free == (4, 3, 1, 2, 5, 6, 7)


def test_p_is_told_of_what_nobody_reads() -> None:
    begun = both(SENT, ASKS, OFFERED._replace(phase="releasing"))
    state = transfer_ends.transfer_done(PAIR, begun, "r0")
    assert statuses(state) == {"D": "waiting"}
    assert state.engine("D") == begun.engine("D")


def test_what_has_not_begun_cannot_end() -> None:
    for transfers in (), (OFFERED,):
        with pytest.raises(NotAllowed, match="has no transfer that could end"):
            transfer_ends.transfer_done(PAIR, both(SENT, ASKS, *transfers), "r0")
    unfinished = Transfer("r0", "releasing", 0, ())
    with pytest.raises(NotAllowed, match="is not finished on P"):
        transfer_ends.transfer_done(PAIR, both(None, ASKS, unfinished), "r0")


def test_only_who_is_sent_is_freed_on_p() -> None:
    begun = both(running(SENT), LOADS, READING)
    assert statuses(transfer_ends.transfer_done(PAIR, begun, "r0"))["P"] == "running"
    assert request_ends.producer_done(PAIR, both(), "r0") == both()
