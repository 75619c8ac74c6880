"""What a load fills is what its transfer says, not what the numbers of tokens suggest."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.invariants.parties import blocks_filled
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Job
from kvproof.model.events import EVENTS, Admit, Compute, Event, Schedule
from kvproof.model.phases import Phase
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import (
    LOADING,
    RUNNING,
    SENDING,
    Block,
    Engine,
    Request,
    State,
    Transfer,
)
from kvproof.model.step import Effects, Step
from tests.watching import Observed

PAIR = CLUSTERS["turns-state"]
"""Blocks of full attention with 2 tokens, and states."""

COMPUTES = Compute("r1", 2, taken=((1,), (2,)))
LOADS = Admit("r3", 2, 4, taken=((3, 4), (5,)))
"""r3 hits block 1, which r1 takes and computes in the same step, and loads the rest."""

PAIRS = (((3,), (8,)), ((5,), (9,)))


def on_decode(*requests: Request) -> Engine:
    return Engine("D", (Block(),) * 12, (), requests=requests)


def state(phase: Phase, **lists: object) -> State:
    """r1 computes on D, and r3 loads."""
    r1 = Request("r1", RUNNING, "aa", 2, 2, computed=2, tables=((1,), (2,)))
    tables = ((1, 3, 4), (0, 0, 5))
    r3 = Request("r3", LOADING, "aaaaaab", 7, 2, tables=tables, hit=2, external=4)
    sent = Request("r3", SENDING, "aaaaaa", 7, 2, computed=6, tables=((6, 7, 8), (0, 0, 9)))
    there = Engine("P", (Block(),) * 12, (), requests=(sent,))
    transfer = Transfer("r3", phase, 6, **lists)  # type: ignore[arg-type]
    return State((there, on_decode(r1, r3)), (transfer,))


READS = state(Phase.READING, remote=((6, 7, 8), (9,)), local=((3, 4), (5,)), pairs=PAIRS)
REGISTERED = state(Phase.REGISTERED, remote=(), local=((3, 4), (5,)))
REFUSED = state(Phase.REFUSED, remote=((6, 7, 8), (9,)))


def found(name: str, after: State, zeroed: tuple[int, ...] = ()) -> list[int | None]:
    """The blocks of the findings of an invariant after a step of D."""
    before = State((Engine("P", (), ()), on_decode()))
    event: Event = Schedule("D", (COMPUTES, LOADS))
    step = Step(before, event, Effects(zeroed=zeroed), after)
    return [found.about.block for found in broken(PAIR, step, [INVARIANTS[name]])]


def test_a_hit_on_a_block_that_is_computed_in_the_same_step_is_not_filled_by_the_load() -> None:
    assert found("zeroed_blocks_are_new", READS, (1,)) == []
    assert found("zeroed_blocks_are_new", REGISTERED, (1,)) == []


@pytest.mark.parametrize("after", [READS, REGISTERED], ids=["reading", "registered"])
def test_no_block_that_a_transfer_fills_is_erased(after: State) -> None:
    assert found("zeroed_blocks_are_new", after, (1, 3)) == [3]


def test_where_no_transfer_says_what_it_fills_nothing_is_judged() -> None:
    assert found("zeroed_blocks_are_new", REFUSED, (1, 3)) == []
    assert found("new_blocks_are_zeroed", REFUSED, (1,)) == []


def test_a_new_block_that_is_neither_erased_nor_given_to_the_connector_is_found() -> None:
    assert found("new_blocks_are_zeroed", READS, (1,)) == []
    assert found("new_blocks_are_zeroed", READS, (4,)) == [1]
    [transfer] = READS.transfers
    fewer = READS._replace(transfers=(transfer._replace(local=((3,), (5,))),))
    assert found("new_blocks_are_zeroed", fewer, (1,)) == [4]


def test_blocks_that_a_transfer_does_not_pair_may_be_freed() -> None:
    """Block 4 of D and block 7 of P are in the lists before trimming, and not in the pairs."""
    [there, here] = READS.engines
    [r1, r3] = here.requests
    kept = on_decode(r1, r3._replace(tables=((1, 3), (0, 5))))
    sent = there._replace(requests=(there.requests[0]._replace(tables=((8,), (9,))),))
    assert found("nothing_reused_under_transfer", READS._replace(engines=(sent, kept))) == []
    freed = READS._replace(engines=(sent, on_decode(r1)))
    step = Step(READS, Schedule("D"), Effects(), freed)
    [wrong] = broken(PAIR, step, [INVARIANTS["nothing_reused_under_transfer"]])
    assert "a transfer still writes blocks [3, 5] of r3 on D" in wrong.sentences


JOBS = (
    Job("r0", "aaaaaaa", 1),
    Job("r1", "aaaaaaa", 3),
    Job("r2", "bbbbbbbbb", 1),
    Job("r3", "aaaaaa", 1),
)

RUN = """
Submit P r0, Submit P r1, Schedule P, Complete P, Schedule P, Complete P, Submit P r2, Submit P r3,
Submit D r0, Submit D r1, Schedule P, Complete P, Schedule D, TransferDone r0, TransferDone r1,
Schedule P, Complete P, Schedule D, Complete D, LeaseExpire r0_reverse, Submit D r2, Schedule P,
Complete P, Schedule D, Complete D, Submit D r3, Schedule D, Complete D, TransferDone r2,
Schedule D, Schedule D, Complete D, LeaseExpire r2_reverse, Schedule D
"""
"""r1 is preempted on D and starts over. In the last step it takes blocks and computes them, and r3
hits one of them and loads the tokens after it."""


@pytest.mark.live
def test_vllm_and_the_sanitizer_agree_about_a_hit_of_the_same_step() -> None:
    observed = Observed(replace(PAIR, jobs=JOBS))
    for words in map(str.split, RUN.split(",")):
        step = observed.take(EVENTS[words[0]](*(word.replace("_", " ") for word in words[1:])))
    assert isinstance(step.event, Schedule)
    last, loads = (step.event.chose or ())[-1], step.after.transfer("r3")
    assert isinstance(last, Admit)
    assert loads is not None
    assert set(last.hit[0]) & set(step.effects.zeroed or ())
    assert not blocks_filled(PAIR, loads) & set(step.effects.zeroed or ())
    checks = INVARIANTS["zeroed_blocks_are_new"], INVARIANTS["new_blocks_are_zeroed"]
    assert not list(broken(observed.machine.cluster, step, checks))
    assert not {"zeroed_blocks_are_new", "new_blocks_are_zeroed"} & set(observed.found)
    assert observed.judges["D"].times_judged["zeroed_blocks_are_new"]
