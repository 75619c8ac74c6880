"""Runs near one: plans and events that differ from it a little. A defect that base has too, and
that another order of steps or copies hides there in this very run, is likely to show in one of
them: then it is not new."""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from kvproof.gate.difference.workload import (
    Again,
    Engine,
    Engines,
    Follow,
    Play,
    Plays,
    Workload,
)
from kvproof.model.events import Event
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import Send
from kvproof.model.plans.taken import Taken

T = TypeVar("T")

VARIANTS_MAX = 48
"""The most runs near one."""

CHANGES_MAX = 4
"""The most events of a run that a variant has not, or has once more, or at another place."""

COPIES = [Copies(late, steps) for late, steps in product((False, True), range(4))]
"""When copies in the background are made and reported."""


EMPTIED = Drain(), ResetCache()
"""What empties the engine's own cache: a hit there may hide on one side what a load does."""


def variants(run: Workload, seed: int, at_once: int) -> list[Workload]:
    """Workloads of `at_once` runs near one. A plan for a connector differs in one thing: in what
    the engine's own cache still has when a request comes, in when copies are made, in a step more,
    or in an action less. One for an engine core differs in its memory, its steps, when copies are
    made, or one message. Requests stay as they are, so that later actions mean the same. Of the
    events of a cluster a few are left out, repeated or moved. Of other runs there are none."""
    if isinstance(run, Play):
        plans = [*islice(_plays(run.plan), VARIANTS_MAX)]
        return [
            Plays(name, run.connector, plans=some) for name, some in _parts(run, plans, at_once)
        ]
    if isinstance(run, Engine):
        cores = [*islice(_engines(run.plan), VARIANTS_MAX)]
        return [Engines(name, plans=some) for name, some in _parts(run, cores, at_once)]
    if isinstance(run, Follow):
        taken = [Taken(run.cluster, _events(run, f"{seed} {n}")) for n in range(VARIANTS_MAX)]
        return [Again(name, run.cluster, some) for name, some in _parts(run, taken, at_once)]
    return []


def _parts(run: Workload, each: Sequence[T], size: int) -> Iterator[tuple[str, tuple[T, ...]]]:
    """Variants of a run in parts of this size, each with a name."""
    for at in range(0, len(each), size):
        yield f"{run.name}, variants from {at}", tuple(each[at : at + size])


def _events(run: Follow, seed: str) -> tuple[Event, ...]:
    """The events of a run with up to `CHANGES_MAX` changes, another one for each seed."""
    random, events = Random(seed), [*run.events]
    for _ in range(random.randint(1, CHANGES_MAX)):
        at, to = (random.randrange(len(events) + 1) for _ in range(2))
        kind = random.choice(("less", "once more", "moved"))
        one = events[at : at + 1]
        if kind != "once more":
            del events[at : at + 1]
        if kind != "less":
            events[to:to] = one
    return tuple(events)


def _plays(plan: ConnectorPlan) -> Iterator[ConnectorPlan]:
    actions = plan.actions
    arrivals = [at for at, each in enumerate(actions) if isinstance(each, SubmitRequest)]
    for at in arrivals[1:]:
        yield replace(plan, actions=(*actions[:at], *EMPTIED, *actions[at:]))
    for copies in COPIES:
        yield replace(plan, copies=copies)
    for at in range(1, len(actions) + 1):
        yield replace(plan, actions=(*actions[:at], RunSteps(), *actions[at:]))
    for at, action in enumerate(actions):
        if not isinstance(action, SubmitRequest):
            yield replace(plan, actions=(*actions[:at], *actions[at + 1 :]))


def _engines(plan: EnginePlan) -> Iterator[EnginePlan]:
    actions = plan.actions
    for blocks in (1, -1, 2):
        yield replace(plan, blocks=plan.blocks + blocks)
    for tokens in (1, 2):
        yield replace(plan, chunk_tokens=plan.chunk_tokens + tokens)
    for copies in COPIES if plan.store else ():
        yield replace(plan, copies=copies)
    for at, action in enumerate(actions):
        if not isinstance(action, Send):
            yield replace(plan, actions=(*actions[:at], *actions[at + 1 :]))
    for at, action in enumerate(actions):
        for after in (each for each in (0, 1, 3) if each != action.after):
            moved = replace(action, after=after)
            yield replace(plan, actions=(*actions[:at], moved, *actions[at + 1 :]))
