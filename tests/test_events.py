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
    Preempt,
    Release,
    Schedule,
    bare,
)
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import NULL, State, Table
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


def runs(make: Callable[[Cluster], Machine], preset: str, count: int = RUNS) -> Iterator[Step]:
    """The steps of random runs."""
    for seed in range(count):
        choose, machine = random.Random(seed), make(CLUSTERS[preset])
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


def check_tables(step: Step, name: str) -> None:
    """What is said of a request that nothing else happens to is what became of its tables."""
    before, after = step.before.engine(name), step.after.engine(name)
    copies = {copy.target for copy in step.effects.copies}
    about: dict[str, list[Choice]] = {}
    for choice in choices(step):
        for request in {choice.request, getattr(choice, "needy", choice.request)}:
            about.setdefault(request, []).append(choice)
    for request, made in about.items():
        new = after.request(request).tables
        old = before.request(request).tables or ((),) * len(new)
        if isinstance(made[0], Admit) and all(isinstance(c, Admit | Compute) for c in made):
            check_admission(made, new, copies)
        elif len(made) == 1 and isinstance(made[0], Compute | Release):
            taken = getattr(made[0], "taken", ((),) * len(old))
            for was, now, more, less in zip(old, new, taken, made[0].freed, strict=True):
                check_table(was, now, [b for b in more if b in now or b not in copies], less)
        elif len(made) == 1 and isinstance(made[0], Preempt) and made[0].request == request:
            for was, freed in zip(old, made[0].freed, strict=True):
                own = [b for b in reversed(was) if b != NULL]
                if made[0].needy == request:  # what it has left behind goes first
                    own, freed = sorted(own), tuple(sorted(freed))
                assert list(freed)[len(freed) - len(own) :] == own


def check_table(was: Table, now: Table, taken: list[int], freed: Table) -> None:
    """A block that is freed may be taken back at once."""
    again = set(freed) & set(taken)
    assert taken == [b for b in now if b != NULL and (b not in was or b in again)]
    assert list(freed) == [b for b in reversed(was) if b != NULL and (b not in now or b in again)]


def check_admission(made: list[Choice], tables: Lists, copies: set[int]) -> None:
    """A table begins with the hit, but for copies of it; then come the blocks that were taken."""
    admitted, *computed = made
    assert isinstance(admitted, Admit)
    for group, (hit, table) in enumerate(zip(admitted.hit, tables, strict=True)):
        given = table[: len(hit)]
        assert all(was == now or now in copies for was, now in zip(hit, given, strict=True))
        lists = [admitted.taken, *(c.taken for c in computed if isinstance(c, Compute))]
        taken = [b for told in lists for b in told[group] if b not in given]
        assert taken == [b for b in table[len(hit) :] if b != NULL]


def check(steps: Iterator[Step]) -> set[str]:
    """Check the lists of all steps. Gives the names of those that had blocks in them."""
    seen: set[str] = set()
    for step in steps:
        if isinstance(step.event, Schedule) and not step.after.engine(step.event.engine).dead:
            check_pool(step, step.event.engine)
            check_tables(step, step.event.engine)
            seen |= {name for choice in choices(step) for name in said(choice)}
    return seen


@pytest.mark.parametrize("preset", SAID)
def test_the_model_says_what_its_states_tell(preset: str) -> None:
    assert SAID[preset] in check(runs(ModelMachine, preset))


@pytest.mark.live
@pytest.mark.parametrize("preset", LIVE)
def test_live_vllm_says_what_its_states_tell(preset: str) -> None:
    assert SAID[preset] in check(runs(live_machine, preset))


class Reversed(ModelMachine):
    def take(self, event: Event) -> Step:
        for engine in self.state.engines if isinstance(event, Schedule) else ():
            self.state = self.state.with_engine(engine._replace(free=engine.free[::-1]))
        return super().take(event)


def but_for_the_queue(state: State) -> State:
    """The state with the free blocks of each engine in order."""
    return state._replace(
        engines=tuple(e._replace(free=tuple(sorted(e.free))) for e in state.engines)
    )


@pytest.mark.parametrize("preset", SAID)
def test_another_order_of_allocation_is_followed(preset: str) -> None:
    """The model takes the recorded blocks, though its own queue would give others."""
    others = 0
    for seed in range(RUNS):
        choose = random.Random(seed)
        machine, follower = Reversed(CLUSTERS[preset]), ModelMachine(CLUSTERS[preset])
        for _ in range(EVENTS_MAX):
            stimuli = machine.stimuli()
            if not stimuli:
                break
            step = machine.take(choose.choice(stimuli))
            before = follower.state
            followed = follower.take(step.event)
            assert followed.event == step.event
            assert but_for_the_queue(followed.after) == but_for_the_queue(step.after)
            own = ModelMachine(CLUSTERS[preset])
            own.state = before
            others += own.take(bare(step.event)).event != step.event
    assert others
