"""Speculative decoding and steps in flight in the model."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.invariants.hits import longest, missing
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Schedule, Submit, TransferDone
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, LATE, VOID, State
from tests.breadth_first import search

# Steps in flight


OVERLAPPING = [n for n, c in CLUSTERS.items() if any(e.overlaps for e in c.engines)]


def ways(state: State) -> set[str]:
    """What is special about the steps in flight of a state."""
    seen = set()
    for engine in state.engines:
        seen |= {f.fate for step in engine.steps for f in step} - {COUNTS}
        seen |= {"two steps"} if len(engine.steps) > 1 else set()
        seen |= {"blocks wait"} if engine.deferred else set()
        seen |= (
            {"runs ahead"} if any(r.computed > len(r.tokens) for r in engine.requests) else set()
        )
    return seen


def test_the_presets_meet_all_that_can_happen_to_a_step_in_flight() -> None:
    seen = set()
    for name in OVERLAPPING:
        for state in search(CLUSTERS[name], [], 10_000).states:
            seen |= ways(state)
    assert seen == {LATE, VOID, "two steps", "blocks wait", "runs ahead"}


# Drafts on P and D


def offered(cluster: Cluster) -> ModelMachine:
    """A machine whose P has finished its first request, which D is to load."""
    machine = ModelMachine(cluster)
    machine.take(Submit("P", "r0"))
    while not machine.state.transfers:
        machine.take(machine.stimuli()[0] if machine.state.engine("P").step else Schedule("P"))
    machine.take(Submit("D", "r0"))
    machine.take(Schedule("D"))
    return machine


def test_what_is_cut_off_an_answer_may_count_for_what_is_left_behind() -> None:
    """Whether it counts decides which states D frees last. The spec leaves it open."""
    machine = ModelMachine(CLUSTERS["pd-drafts"].carrying(Job("r0", "a", 2)))
    machine.state = offered(machine.cluster).state
    for event in (TransferDone("r0"), Schedule("D"), Complete("D"), Schedule("D")):
        machine.take(event)
    step = machine.take(Complete("D", {"r0": 1}))
    p, d = step.after.engines
    assert d.free[-2:] == (2, 1)
    otherwise = d._replace(free=(*d.free[:-2], 1, 2))
    other = step._replace(after=step.after._replace(engines=(p, otherwise)))
    assert not [*broken(machine.cluster, other, CHECKS.values())]


# Block hashes that cover the next token


EAGLE = Group("full", 2, eagle=True)
HASHING = EngineConfig("E", (EAGLE,), 12, drafts=1, hash_lookahead_tokens=1)


@pytest.mark.parametrize(("known", "alike", "hit"), [(5, 5, 4), (5, 4, 2), (6, 5, 4), (4, 4, 2)])
def test_what_the_invariants_expect_of_a_hit(known: int, alike: int, hit: int) -> None:
    assert longest(HASHING, known, alike) == hit


def test_a_state_inside_a_block_is_looked_up_by_the_tokens_that_its_hash_covers() -> None:
    wider = Group("mamba", 4)
    engine = replace(HASHING, groups=(EAGLE, wider))
    assert engine.partial_block_hits
    cached = {(0, "abc"), (1, "abc")}
    assert list(missing(engine, cached, "abcd", 2)) == []
    assert list(missing(engine, {(0, "abc"), (1, "ab")}, "abcd", 2)) == [(1, "abc")]
