"""A store beside KV transfers: P and D each load from the store what the other does not offer."""

from contextlib import closing
from typing import Any

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import GUARDS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.cluster import Direction
from kvproof.model.events import (
    Admit,
    Complete,
    Event,
    LeaseExpire,
    ResetPrefixCache,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.state import LOADING, RUNNING
from kvproof.model.step import Step
from tests.watching import live_machine

pytestmark = pytest.mark.live

PROMPT = "abcdefg"
PREFILL: tuple[Event, ...] = (Schedule("P"), Complete("P"))
DECODE: tuple[Event, ...] = (Schedule("D"), Complete("D"))


def first(steps: int = 1) -> tuple[Event, ...]:
    """A first request ends on both engines, and what they have cached is lost. P computes it in so
    many steps. With pull, D gets it after that."""
    arrive, loads = (Submit("P", "r0"), Submit("D", "r0")), (Schedule("D"), TransferDone("r0"))
    resets = ResetPrefixCache("P"), ResetPrefixCache("D")
    return (*arrive, *PREFILL * steps, *loads, *DECODE * 2, *resets)


def cluster(transfer: Direction, *states: Group, **more: Any) -> Cluster:
    """P and D with stores, and two jobs of one prompt."""
    engines = (
        EngineConfig(name, (Group("full", 2), *states), 24, role, store=True)
        for name, role in (("P", "prefill"), ("D", "decode"))
    )
    jobs = Job("r0", PROMPT, 2), Job("r1", PROMPT, 2)
    return Cluster("c", tuple(engines), jobs, transfer=transfer, resets=True, **more)


def taken(machine: Any, *events: Event) -> Step:
    """The last step of these events; an event that is not possible yet is taken later."""
    left = [*events]
    while left:
        event = next(e for e in left if e in machine.stimuli())
        left.remove(event)
        step = machine.take(event)
    return step


def loads(step: Step) -> list[tuple[int, int]]:
    """The hits and loads of a step."""
    chosen = step.event.chose if isinstance(step.event, Schedule) else ()
    return [(c.local_hit, c.external) for c in chosen or () if isinstance(c, Admit)]


@pytest.mark.parametrize("transfer", ["pull", "push"])
def test_p_loads_from_its_store_and_d_from_p(transfer: Direction) -> None:
    with closing(live_machine(cluster(transfer))) as machine:
        taken(machine, *first(), Submit("P", "r1"))
        step = taken(machine, Schedule("P"))
        assert loads(step) == [(0, 6)]
        assert step.after.engine("P").request("r1").status == RUNNING
        assert step.effects.reads
        assert all(read.found == read.expected for read in step.effects.reads)
        taken(machine, Complete("P"), Submit("D", "r1"))
        step = taken(machine, Schedule("D"))
        assert loads(step) == [(0, 7)]
        assert step.after.engine("D").request("r1").status == LOADING
        taken(machine, TransferDone("r1"))
        step = taken(machine, Schedule("D"))
        assert all(read.found == read.expected for read in step.effects.reads)


def test_the_store_of_p_leaves_a_token_of_a_prompt_whose_last_token_nixl_takes_away() -> None:
    with closing(live_machine(cluster("pull", Group("mamba", 2)))) as machine:
        taken(machine, *first(steps=2))
        assert machine.state.engine("P").stored == ("abcd", "abcdef")
        step = taken(machine, Submit("P", "r1"), Schedule("P"))
        assert not step.after.engine("P").dead
        assert loads(step) == [(0, 4)]


def test_what_a_failed_read_did_not_bring_comes_from_the_store_of_d() -> None:
    with closing(live_machine(cluster("pull", failures=1, load_failure="recompute"))) as machine:
        taken(machine, *first(), Submit("P", "r1"), Schedule("P"), Complete("P"), Submit("D", "r1"))
        taken(machine, Schedule("D"), TransferFail("r1"))
        step = taken(machine, Schedule("D"))
        assert loads(step) == [(0, 6)]
        assert step.after.engine("D").request("r1").status == RUNNING
        assert all(read.found == read.expected for read in step.effects.reads)
        step = taken(machine, Complete("D"), LeaseExpire("r1"))
        assert not step.after.transfers


def test_what_neither_the_store_nor_the_other_engine_has_is_not_loaded() -> None:
    made = cluster("pull")
    with closing(live_machine(made)) as machine:
        taken(machine, *first(), Submit("P", "r1"))
        step = taken(machine, Schedule("P"))
    guard = [GUARDS["load_is_offered"]]
    assert not [*broken(made, step, guard)]
    without = step.before.engine("P")._replace(stored=("ab",))
    wrong = step._replace(before=step.before.with_engine(without))
    assert [*broken(made, wrong, guard)]
