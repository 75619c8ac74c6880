"""Runs near one: plans and events that differ from it a little. A defect that base has too, and
that another order of steps or copies hides there in this very run, is likely to show in one of
them: then it is not new.

Before each of them an engine serves other requests. So its blocks have other ids, and its free
queue has another order: what breaks by chance, in states that few runs reach, is then as likely on
base as on head, although the run was chosen as one in which head breaks it."""

from collections.abc import Iterator, Sequence
from itertools import islice, product, starmap
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
from kvproof.model.config import Cluster, Job
from kvproof.model.events import Complete, Continue, Event, Schedule, Submit, TransferDone
from kvproof.model.plans.connector import (
    PROMPT_TOKENS_MAX,
    Beside,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.plans.messages import ACTIONS_MAX, LENGTH, Send
from kvproof.model.plans.part import Taken
from kvproof.strategies.sampling.workloads import longest_prompt

T = TypeVar("T")

VARIANTS_MAX = 48
"""The most runs near one."""

CHANGES_MAX = 4
"""The most events of a run that a variant has not, or has once more, or at another place."""

BEFORE = "qvz"
"""The tokens of the requests that come before the run of a cluster: one for each."""

JOBS_MAX = 40
"""A cluster with more jobs has no place for such requests."""

ROUNDS = 4
"""Rounds of events in which such a request is served."""

MOMENTS = 8
"""Moments of a loop in which such a request is served."""

COPIES = [Copies(late, steps) for late, steps in product((False, True), range(4))]
"""When copies in the background are made and reported."""


AFTER_MAX = 64
"""The most moments of a loop before an action."""

BESIDE: tuple[Beside, ...] = ("salt", "lora")

EMPTIED = Drain(), ResetCache()
"""What empties the engine's own cache: a hit there may hide on one side what a load does."""


def variants(run: Workload, seed: int, at_once: int) -> list[Workload]:
    """Workloads of `at_once` runs near one. A plan for a connector differs in one thing: in what
    the engine's own cache still has when a request comes, in when copies are made, in a step more,
    or in an action less. One for an engine core differs in its memory, its steps, when copies are
    made, or one message. Requests stay as they are, so that later actions mean the same. Of the
    events of a cluster a few are left out, repeated or moved. Of other runs there are none."""
    if isinstance(run, Play):
        plans = [*starmap(_after_another, enumerate(islice(_plays(run.plan), VARIANTS_MAX)))]
        return [
            Plays(name, run.connector, plans=some) for name, some in _parts(run, plans, at_once)
        ]
    if isinstance(run, Engine):
        cores = [*starmap(_after_one, enumerate(islice(_engines(run.plan), VARIANTS_MAX)))]
        return [Engines(name, plans=some) for name, some in _parts(run, cores, at_once)]
    if isinstance(run, Follow):
        taken = [_taken(run, Random(f"{seed} {n}")) for n in range(VARIANTS_MAX)]
        return [Again(name, run.cluster, some) for name, some in _parts(run, taken, at_once)]
    return []


def _parts(run: Workload, each: Sequence[T], size: int) -> Iterator[tuple[str, tuple[T, ...]]]:
    """Variants of a run in parts of this size, each with a name."""
    for at in range(0, len(each), size):
        yield f"{run.name}, variants from {at}", tuple(each[at : at + size])


def _taken(run: Follow, random: Random) -> Taken:
    """A run after other requests, with up to `CHANGES_MAX` changes."""
    cluster, events = run.cluster, [*run.events]
    longest = min(longest_prompt(cluster.engines, 1), *(e.chunk_tokens for e in cluster.engines))
    before = [
        Job(f"before {n}", token * random.randint(1, longest), 1)
        for n, token in enumerate(BEFORE[: random.randint(1, len(BEFORE))])
        if longest and len(cluster.jobs) <= JOBS_MAX
    ]
    for _ in range(random.randint(1, CHANGES_MAX)):
        at, to = (random.randrange(len(events) + 1) for _ in range(2))
        kind = random.choice(("less", "once more", "moved"))
        one = events[at : at + 1]
        if kind != "once more":
            del events[at : at + 1]
        if kind != "less":
            events[to:to] = one
    first = [event for job in before for event in _served(cluster, job.name)]
    return Taken(cluster.carrying(*cluster.jobs, *before), (*first, *events), len(first))


def _served(cluster: Cluster, name: str) -> Iterator[Event]:
    """Events that serve a request; what is not possible when its turn comes is left out."""
    for _ in range(ROUNDS):
        for engine in cluster.engines:
            yield Submit(engine.name, name)
            yield from (Schedule(engine.name), Complete(engine.name))
            yield Continue(engine.name, name)
            yield TransferDone(name)


def _after_another(number: int, plan: ConnectorPlan) -> ConnectorPlan:
    """A plan after a request that shares nothing with the others of it; of several engines the
    plan itself, as requests go to each in turn."""
    used = {each.beside for each in plan.actions if isinstance(each, SubmitRequest)}
    free = [each for each in BESIDE if each not in used]
    if plan.replicas or not free:
        return plan
    before = SubmitRequest(0, 1 + number * 5 % PROMPT_TOKENS_MAX, beside=free[0])
    return replace(plan, actions=(before, *EMPTIED, *plan.actions))


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


def _after_one(number: int, plan: EnginePlan) -> EnginePlan:
    """A plan after a request that shares nothing with the others of it; the plan itself where no
    client sends anything."""
    if not plan.actions or len(plan.actions) == ACTIONS_MAX:
        return plan
    before = Send(0, "before", 0, 1 + number % plan.chunk_tokens % (LENGTH - 1), 1)
    first, *rest = plan.actions
    first = replace(first, after=min(first.after + MOMENTS, AFTER_MAX))
    return replace(plan, actions=(before, first, *rest))


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
