"""Random plans for connectors, drawn from the cache groups that both vLLMs accept. So both sides
play the same plans: what a side would draw by itself depends on what it accepts."""

from collections.abc import Sequence

from msgspec.structs import replace

from kvproof.gate.difference.protocol import Accepts
from kvproof.gate.difference.record import Pair
from kvproof.gate.difference.workload import Plays
from kvproof.live.connectors.drawn import draw_plans
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import (
    AbortRequest,
    ConnectorPlan,
    Drain,
    ResetCache,
    RunSteps,
    SubmitRequest,
)

STEPS = RunSteps, Drain
"""The actions that steps of an engine are."""

PAST = "past what ends both"
"""The end of the name of a workload whose plans lack what ended them on both sides."""


ABANDONED = 3
"""Of so many plans, a client goes in one while its request loads."""


def accepted_by_both(base: Accepts, head: Accepts) -> Accepts:
    """What both accept, or the one that has the connector at all. What one of them fails to make by
    mistake is tried on both."""
    if base.reason or head.reason:
        return head if base.reason else base
    both = tuple(each for each in base.plans if each in head.plans)
    return Accepts(both, tuple(dict.fromkeys((*base.failing, *head.failing))))


def one_sided(name: str, base: Accepts, head: Accepts) -> list[str]:
    """The cache groups that one side alone accepts, and the other refuses, a line each."""
    if base.reason or head.reason:
        return []
    return [
        f"plans for {name} with {plan.words}: {which} alone accepts these cache groups"
        for which, ours, theirs in (("base", base, head), ("head", head, base))
        for plan in ours.plans
        if plan not in (*theirs.plans, *theirs.failing)
    ]


def with_plans(workload: Plays, accepts: Accepts) -> Plays:
    """The workload with its plans. First comes a plan without actions for each kind of groups with
    which a connector cannot be made by mistake."""
    if workload.like is None:
        kinds = [each for each in accepts.plans if each.traits & {*workload.about}]
        kinds = kinds or [*accepts.plans]
        kinds = [each for each in kinds if each.kinds == workload.kinds] or kinds
        chosen = [*accepts.failing]
    else:
        kinds = [workload.like]
        chosen = []
    if not kinds:
        return replace(workload, plans=tuple(chosen))

    draw_plans(
        SHIPPED[workload.connector].subject,
        kinds,
        workload.episodes,
        workload.seed,
        chosen.append,
    )
    options = workload.config_options or (workload.like.config_options if workload.like else ())
    plans = (each if n % ABANDONED else abandoned(each) for n, each in enumerate(chosen, 1))
    return replace(workload, plans=tuple(replace(e, config_options=options) for e in plans))


def abandoned(plan: ConnectorPlan) -> ConnectorPlan:
    """A plan in which a client goes while its request loads: what has come before a reset of the
    engine's own cache is loaded in the first step after it. The plan itself where no request comes
    after a reset."""
    kinds = [type(each) for each in plan.actions]
    after = kinds.index(ResetCache) if ResetCache in kinds else len(kinds)
    if SubmitRequest not in kinds[after:]:
        return plan
    at = kinds.index(SubmitRequest, after)
    while kinds[at : at + 1] == [SubmitRequest]:
        at += 1
    goes = RunSteps(), AbortRequest()
    return replace(plan, actions=(*plan.actions[:at], *goes, *plan.actions[at:]))


def past_deaths(workload: Plays, taken: Sequence[Pair]) -> Plays | None:
    """The plans of a workload whose engine died of the same on both sides, without the actions that
    it died in: so base's defect does not hide what would have come. A step is not left out, as what
    it died of may have begun earlier. None where there is no such plan."""
    plans = [
        replace(plan, actions=(*plan.actions[:at], *plan.actions[at + 1 :]))
        for plan, pair in zip(workload.plans or (), taken, strict=False)
        if (at := pair.ends_both) is not None
        and at < len(plan.actions)
        and not isinstance(plan.actions[at], STEPS)
    ]
    name = f"{workload.name}, {PAST}"
    return replace(workload, name=name, plans=tuple(plans)) if plans else None
