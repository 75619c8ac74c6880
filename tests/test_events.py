"""Events say which blocks were taken and freed: those that the states before and after tell, on the
model and on live vLLM. What is recorded can be followed."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from kvproof.model.config import Cluster
from kvproof.model.events import (
    Admit,
    Choice,
    Compute,
    Event,
    Lists,
    Schedule,
    bare,
)
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import NULL, State
from kvproof.model.step import Step
from tests.watching import live_machine

SAID = {
    "full": "Admit.hit",
    "hybrid": "Compute.freed",
    "hybrid-drafts": "Compute.taken",
    "window": "Compute.freed",
    "pd": "Admit.taken",
    "pd-drafts": "Admit.taken",
    "pd-hitting": "Admit.hit",
    "pd-preempting": "Preempt.freed",
    "pd-recomputing": "FinishLoad.freed",
    "sessions": "Preempt.freed",
    "store": "Admit.taken",
    "partial": "Admit.hit",
    "partial-async": "Preempt.freed",
    "priority": "Preempt.freed",
}
"""Presets, and a list that must be seen with blocks in it."""

LIVE = ("full", "hybrid", "pd", "pd-drafts", "pd-recomputing", "sessions", "store", "partial")
RUNS, EVENTS_MAX = 12, 80


def taken(machine: Machine, seed: int) -> Iterator[Step]:
    """The steps of a random run."""
    choose = random.Random(seed)
    for _ in range(EVENTS_MAX):
        stimuli = machine.stimuli()
        if not stimuli or any(e.dead for e in machine.state.engines):
            break
        yield machine.take(choose.choice(stimuli))


def choices(step: Step) -> tuple[Choice, ...]:
    return (step.event.chose or ()) if isinstance(step.event, Schedule) else ()


def said(choice: Choice) -> set[str]:
    """The lists of a choice that have blocks in them."""
    lists = {name: getattr(choice, name, ()) for name in ("hit", "taken", "freed")}
    kind = type(choice).__name__
    return {f"{kind}.{name}" for name, told in lists.items() if any(map(any, told))}


def real(lists: tuple[tuple[int, ...], ...]) -> list[int]:
    return [block for blocks in lists for block in blocks if block != NULL]


def check_pool(step: Step, name: str) -> None:
    """Whoever takes and frees what the choices say comes from the pool before to the pool after."""
    before, after = step.before.engine(name), step.after.engine(name)
    refs = Counter({n: b.refs for n, b in enumerate(before.blocks) if n != NULL})
    held: list[int] = []
    for choice in choices(step):
        if not isinstance(choice, Admit):
            for block in real(choice.freed):
                assert refs[block] > 0, f"{block} is freed and nobody has it"
                refs[block] -= 1
        if isinstance(choice, Admit):
            refs.update(real(choice.hit))
        if isinstance(choice, Admit | Compute):
            for block in real(choice.taken):
                assert refs[block] == 0, f"{block} is taken and is not free"
                refs[block] = 1
                held.append(block)
    tables = {b for r in after.requests for table in r.tables for b in table}
    for copy in step.effects.copies:
        assert copy.target in held
        # Of the two, the request keeps the one that its table has.
        refs[copy.source if copy.target in tables else copy.target] -= 1
    assert +refs == +Counter({n: b.refs for n, b in enumerate(after.blocks) if n != NULL})
    assert {b for b in range(1, len(after.blocks)) if not refs[b]} == set(after.free)


def held(state: State) -> list[tuple[set[int], dict[str, Lists]]]:
    """The free blocks of each engine, and the tables of its requests."""
    return [(set(e.free), {r.id: r.tables for r in e.requests}) for e in state.engines]


def check(preset: str, make: Callable[[Cluster], Machine]) -> int:
    """Check the lists of random runs: they tell how the pool changes, and the model that takes the
    recorded blocks says the same of each event and has the same tables. Its own queue would give
    others in so many steps."""
    seen, others = set[str](), 0
    for seed in range(RUNS):
        follower, own = ModelMachine(CLUSTERS[preset]), ModelMachine(CLUSTERS[preset])
        for step in taken(make(CLUSTERS[preset]), seed):
            if isinstance(step.event, Schedule):
                check_pool(step, step.event.engine)
                seen |= {name for choice in choices(step) for name in said(choice)}
            own.state = follower.state
            followed = follower.take(step.event)
            assert followed.event == step.event
            assert held(followed.after) == held(step.after)
            others += own.take(bare(step.event)).event != step.event
    assert SAID[preset] in seen
    return others


@pytest.mark.live
@pytest.mark.parametrize("preset", LIVE)
def test_live_vllm_says_what_its_states_tell(preset: str) -> None:
    check(preset, live_machine)


class Reversed(ModelMachine):
    def take(self, event: Event) -> Step:
        for engine in self.state.engines if isinstance(event, Schedule) else ():
            self.state = self.state.with_engine(engine._replace(free=engine.free[::-1]))
        return super().take(event)


@pytest.mark.parametrize("preset", SAID)
def test_another_order_of_allocation_is_followed(preset: str) -> None:
    assert check(preset, Reversed)
