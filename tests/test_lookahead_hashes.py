"""Block hashes that cover the next token: what a hit may be, and what events tell."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.hits import longest, missing
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.kv_events import Stored
from kvproof.model.machine import ModelMachine
from kvproof.model.step import Step

EAGLE = Group("full", 2, eagle=True)
HASHING = EngineConfig("E", (EAGLE,), 12, drafts=1, hash_lookahead_tokens=1)


def served(*jobs: Job, engine: EngineConfig = HASHING) -> list[Step]:
    """Serve the jobs one after the other, no draft accepted. Gives all steps."""
    machine, steps = ModelMachine(Cluster("c", (engine,), jobs)), []
    for job in jobs:
        steps.append(machine.take(Submit("E", job.name)))
        while machine.state.engine("E").find(job.name):
            steps += [machine.take(Schedule("E")), machine.take(Complete("E"))]
    return steps


@pytest.mark.parametrize(("known", "alike", "hit"), [(5, 5, 4), (5, 4, 2), (6, 5, 4), (4, 4, 2)])
def test_what_the_invariants_expect_of_a_hit(known: int, alike: int, hit: int) -> None:
    assert longest(HASHING, known, alike) == hit


def test_events_tell_the_token_after_each_block() -> None:
    engine = replace(HASHING, kv_events=True)
    steps = served(Job("r0", "abcde", 2), engine=engine)
    assert [step.effects.reports for step in steps if step.effects.reports] == [
        (Stored(0, "", "abcd", ("abc", "abcde"), ("c", "e")),),
        (Stored(0, "abcde", "e.", ("abcde..",), (".",)),),
    ]


def test_a_state_inside_a_block_is_looked_up_by_the_tokens_that_its_hash_covers() -> None:
    wider = Group("mamba", 4)
    engine = replace(HASHING, groups=(EAGLE, wider))
    assert engine.partial_block_hits
    cached = {(0, "abc"), (1, "abc")}
    assert list(missing(engine, cached, "abcd", 2)) == []
    assert list(missing(engine, {(0, "abc"), (1, "ab")}, "abcd", 2)) == [(1, "abc")]
