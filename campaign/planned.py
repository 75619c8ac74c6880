"""This module carries out a unit of random plans: of a connector that vLLM ships, or of engine
cores. They are driven and judged as the gate does."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kvproof.campaign.behaviours import PLAN
from kvproof.campaign.unit import FoundRun, Unit, UnitResult
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Engines, Planned, Play, Plays
from kvproof.gate.side import around_scheduler
from kvproof.gate.side.known_plans import RUNS_KEPT, Drives, likeness, sign_of
from kvproof.gate.side.plans import driven
from kvproof.model.errors import AdapterDrift
from kvproof.model.finding import Signature
from kvproof.model.traces.lines import Found
from kvproof.strategies.shrinking import shrunk

ENGINES = "engines"
"""The name of the plans that are not of a connector."""

OF_TWO = {check.id for check in around_scheduler.CHECKS.values() if check.of_two}
"""The checks that compare two vLLMs."""

NEEDS_EARLIER = "needs what earlier plans left"
"""What is said of a finding that its plan does not show alone, in a fresh process."""

SHRINKING_PLANS_MAX = 60
"""The most plans that are tried to make the plan of a finding shorter."""


def carry_out_plans(unit: Unit) -> UnitResult:
    """Carry out a unit of plans, and return its result."""
    plans = unit.work
    assert isinstance(plans, Plays | Engines)
    shown: dict[str, None] = {}

    def note(kinds: Iterable[str]) -> None:
        if isinstance(plans, Plays):  # each fact comes once for each feature of the engine
            kinds = (each.partition(": ")[2] for each in kinds)
        shown.update(dict.fromkeys(f"{PLAN} {plans.name}: {each}" for each in kinds))

    try:
        result = driven(plans, note=note)
        met = Counter(each.by for each in result.breaks if each.by)
        found = _found(unit, plans, result, met)
    except AdapterDrift as drift:
        return UnitResult(number=unit.number, undriven=drift.why)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return UnitResult(number=unit.number, error=f"{text:.600}")
    return UnitResult(
        number=unit.number,
        steps=result.steps,
        runs=plans.episodes,
        shown=tuple(shown),
        found=tuple(found.values()),
        met=dict(sorted(met.items())),
        undriven=result.without_loops,
    )


def warm() -> None:
    """Import all of vLLM that plans need, before the first fork."""
    from kvproof.gate.side import connector_plans

    around_scheduler.warm()
    connector_plans.known()


def _found(
    unit: Unit, plans: Plays | Engines, result: Result, met: Counter[str]
) -> dict[Signature, FoundRun]:
    """Return the findings that need no other vLLM beside this one, and that are no consequence of
    others. What is known is counted in `met`. Plans of those that are new are made shorter."""
    found: dict[Signature, FoundRun] = {}
    for each in result.breaks:
        by = _signature(plans, each)
        if each.by or each.after or by.check in OF_TWO:
            continue
        like = likeness(each, drives(each))
        if like.name and not like.at_work:
            by = _more(by, f"looks like {like.name}")
        if like.at_work:
            met[like.name] += 1
        elif by not in found and by not in unit.known:
            shortest = _shortest(each)
            assert shortest.plan is not None
            if not _breaks_alone(shortest):
                by = _more(by, NEEDS_EARLIER)
            found[by] = FoundRun(by, Found.of(shortest.finding), shortest.plan)
    return found


def _breaks_alone(found: Break) -> bool:
    """Whether a plan shows its finding in a process of its own. One of an engine core
    has nothing that could outlive its engine."""
    if not isinstance(found.plan, Play):
        return True
    from kvproof.gate.connectors.alone import breaks_alone
    from kvproof.gate.side import connector_plans

    return breaks_alone(connector_plans.subject(found.plan), found.plan.plan, found.signature.check)


def _more(by: Signature, said: str) -> Signature:
    """The signature, which says one thing more."""
    return by._replace(feature=", ".join(filter(None, (by.feature, said))))


def drives(found: Break) -> Drives:
    """Drive plans where this break was found, and return what they show."""
    connector = found.plan.connector if isinstance(found.plan, Play) else ""
    return lambda run, own=False: _shown(run, connector, own)


@lru_cache(RUNS_KEPT)
def _shown(run: Planned, connector: str, own: bool) -> Result | None:
    if isinstance(run, Play):
        from kvproof.gate.side import connector_plans
        from kvproof.live.connectors.shipped import SHIPPED

        return connector_plans.shown(SHIPPED[connector].subject, run, own)
    with suppress(AdapterDrift):
        return driven(run)
    return None


def _signature(plans: Plays | Engines, found: Break) -> Signature:
    """Return the signature, with the name of the connector, one kind of cache group, and the place
    where an engine died."""
    sign = sign_of(found)
    of = sign.feature if isinstance(plans, Plays) else ""
    parts = plans.name, of, sign.death
    return Signature(sign.check, "Plan", ", ".join(filter(None, parts)))


def _shortest(found: Break) -> Break:
    """Return the break with the shortest plan found."""
    best, whole = found, found.plan
    assert whole is not None

    def shows(plan: Any) -> bool:
        nonlocal best
        again = driven(whole.of(plan)).keys.get(found.key)
        best = again or best
        return again is not None

    shrunk(whole.run, shows, SHRINKING_PLANS_MAX)
    return best
