"""What is known of connectors and engine cores: a finding of one of these has plans in its
folder, as a finding of a cluster has a trace. What is no finding of its own, because it is reported
to vLLM by others, wanted or not grave, has plans in a folder of `findings/explained/`, and a line
in its page.

A break looks like a finding if a plan of that, driven on the same vLLM and with the same connector,
breaks the same. So nothing looks like a finding that a vLLM has mended. An exception says what
failed: the plan may show it with the connector that it was written for, because another one of the
same classes may not come so far in it.

A break is known only if the cause of the finding was at work in it. This is tried: the plan names
the ingredients that the cause needs (`live/known/ingredients.py`), and without any of them the run
of the break breaks the check no longer. Several causes may be at work in one run: then what breaks
without an ingredient of the first has to be known in the same way, by ingredients that the run
still has. What looks like a finding, and breaks the check all the same or cannot be tried, is new.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result, severity
from kvproof.gate.difference.workload import Engine, Planned, Play
from kvproof.live.known.ingredients import without
from kvproof.live.known.traces import FOLDER
from kvproof.model.known_finding import at_work
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.severity import Severity
from kvproof.model.traces.lines import Cause
from kvproof.model.traces.trace import PlanRun
from kvproof.model.traces.trace_reader import read_run

PLANS = "plan-*.jsonl"

EXPLAINED = FOLDER / "explained"

RUNS_KEPT = 1_000
"""The number of runs of which is kept what they show: about those of all findings."""

CAUSES_MAX = 3
"""The largest number of causes, each of a known finding, that are looked for in one run."""


class KnownPlan(NamedTuple):
    """A plan of a finding, the id of the check that it breaks where a vLLM has the finding, and
    what is known of its cause (`Cause`)."""

    check: str
    run: Planned
    death: str = ""
    needs: tuple[str, ...] = ()
    instead: str = ""

    @classmethod
    def of(cls, path: Path) -> "KnownPlan":
        """The plan in a file. Raises UsageError."""
        planned = read_run(path)
        assert isinstance(planned, PlanRun), path
        assert planned.finding is not None, path
        cause, plan, name = planned.cause or Cause(), planned.plan, planned.connector
        run = Engine("", plan) if isinstance(plan, EnginePlan) else Play("", name.name, plan)  # type: ignore[union-attr]
        return cls(planned.finding.invariant, run, cause.death, cause.needs, cause.instead)


class Likeness(NamedTuple):
    """The finding that a break looks like, and whether its cause was `at_work`. The name is empty
    where it looks like none."""

    name: str = ""
    at_work: bool = False


Drives = Callable[..., Result | None]
"""What a run (`Planned`) shows on the vLLM of a break, with the connector of the break or, if
`own`, with that of the run. None where it cannot be driven."""


class BreakSign(NamedTuple):
    """What two breaks of one cause have in common: the check and the kinds of its reasons, and for
    a death its place and its statement. For what else breaks, a connector has the kind of cache
    group, an engine core has the whole feature, and an exception that an engine outlives
    its message. Which other groups and which action a plan has says little of the cause."""

    check: str
    feature: str
    death: str
    statement: str
    reasons: frozenset[str]


def sign_of(found: Break) -> BreakSign:
    """The sign of a break that has a plan."""
    signature, feature = found.signature, found.signature.feature
    if found.death:
        feature = ""
    elif isinstance(found.plan, Play):
        group, of, _ = feature.partition(" of ")
        feature = group if of else ""
    reasons = frozenset(
        f"{each.facts}" if each.kind == "message" and not found.death else each.kind
        for each in found.finding.reasons
    )
    return BreakSign(signature.check, feature, found.death, found.statement, reasons)


def likeness(found: Break, driven: Drives) -> Likeness:
    """The finding that explains a break, rather one that does so alone than one of several causes;
    or else the first one that it looks like."""
    similar = _similar(found, driven)
    for causes in (1, CAUSES_MAX):
        for name, plan in similar:
            if is_at_work(plan, found, driven, causes=causes):
                return Likeness(name, at_work=True)
    return Likeness(similar[0][0]) if similar else Likeness()


def is_at_work(
    plan: KnownPlan,
    found: Break,
    driven: Drives,
    earlier: tuple[Break, ...] = (),
    causes: int = CAUSES_MAX,
) -> bool:
    """Whether a break comes again in its run, and without any one of the ingredients of this plan
    neither it comes nor one of the `earlier` breaks, whose ingredients the run is without. So many
    `causes` are looked for in all. Where no ingredient is named, nothing was tried."""
    run = found.plan
    assert run is not None
    runs = [_without(name, run) for name in plan.needs]
    if plan.instead and isinstance(run, Play):
        runs.append(replace(run, connector=plan.instead))
    if not at_work(runs, partial(_is_kept, (*earlier, found), driven, causes)):
        return False
    first, *_ = (*earlier, found)
    assert first.plan is not None
    return _shows(found, run, driven, first.plan)


def _shows(found: Break, run: Planned, driven: Drives, first: Planned) -> bool:
    """Whether a run shows a break."""
    shown = _driven(run, driven, first)
    return shown is not None and any(_the_same(found, each) for each in shown.breaks)


def _driven(run: Planned, driven: Drives, first: Planned) -> Result | None:
    """What a run shows, with the connector of the `first` one or, if it names another, its own."""
    own = isinstance(run, Play) and isinstance(first, Play) and run.connector != first.connector
    return driven(run, own=own)


def _is_kept(found: tuple[Break, ...], driven: Drives, causes: int, run: Planned) -> bool:
    """Whether a run came to its end and judged the checks of these breaks, which hold. If it breaks
    one of them, or something else ends it, this is said of the run without that: then all that it
    breaks has to be known, and what did not come again in it comes without what ends it, too."""
    assert found[0].plan is not None
    shown = _driven(run, driven, found[0].plan)
    if shown is None:
        return False
    broken = [e for e in shown.breaks if any(_the_same(each, e) for each in found)]
    if shown.course.ended and not broken:
        return all(each.signature.check in shown.course.judged for each in found)
    ends = (each for each in shown.breaks if severity(each) < Severity.LEAK)
    left = [each for each in (*broken, *ends) if not each.after]
    return (
        bool(left)
        and len(found) < causes
        and all(
            _is_known(dataclasses.replace(each, plan=run), driven, found, bool(broken))
            for each in left
        )
    )


def _is_known(found: Break, driven: Drives, earlier: tuple[Break, ...], comes_again: bool) -> bool:
    similar = (plan for _, plan in _similar(found, driven))
    return any(
        is_at_work(plan, found, driven, earlier)
        and (comes_again or _comes_without(plan, earlier[0], driven))
        for plan in similar
    )


def _comes_without(plan: KnownPlan, first: Break, driven: Drives) -> bool:
    """Whether a break comes in its run without an ingredient of this plan, of another cause."""
    assert first.plan is not None
    others = (_without(name, first.plan) for name in plan.needs)
    return any(each and _shows(first, each, driven, first.plan) for each in others)


def _similar(found: Break, driven: Drives) -> list[tuple[str, KnownPlan]]:
    """The plans of findings that break what a break breaks, in the same way."""
    return [each for each in _in_order(found) if _alike(each[1], found, driven)]


def _without(name: str, run: Planned) -> Planned | None:
    """A run without the ingredient of this name; None where it has none of it."""
    plan = without(name, run.plan)
    return None if plan is None else replace(run, plan=plan)


def _the_same(found: Break, other: Break) -> bool:
    """Whether two breaks are of one check and, where an engine dies, of one place."""
    return (found.signature.check, found.death) == (other.signature.check, other.death)


def _in_order(found: Break) -> list[tuple[str, KnownPlan]]:
    """The plans of the kind of a break: first those of its check, and of these the ones whose
    causes need most."""
    alike = [each for each in plans() if type(each[1].run) is type(found.plan)]
    check = found.signature.check
    return sorted(alike, key=lambda each: (each[1].check != check, -len(each[1].needs)))


def _alike(plan: KnownPlan, found: Break, driven: Drives) -> bool:
    """Whether the plan of a finding breaks what a break breaks, in the same way."""
    sign, shown = sign_of(found), driven(plan.run)
    if shown is not None and sign in signs(plan, shown.breaks):
        return True
    raised = any(each.kind == "message" for each in found.finding.reasons)
    if not raised or (plan.check, plan.death) != (sign.check, sign.death):
        return False
    shown = driven(plan.run, own=True)
    return shown is not None and sign in signs(plan, shown.breaks)


def signs(plan: KnownPlan, breaks: Sequence[Break]) -> set[BreakSign]:
    """The signs of a finding whose plan breaks these, first of all. None where it does not break
    its check as it did: then this vLLM does not have the finding."""
    found = {sign_of(each) for each in breaks if not each.after}
    shown = any((each.check, each.death) == (plan.check, plan.death) for each in found)
    return found if shown else set()


def plans() -> Iterator[tuple[str, KnownPlan]]:
    """The name of each finding, and of each line of the page, that has plans, with each of them."""
    for name, of_one in _all().items():
        for plan in of_one:
            yield name, plan


@cache
def _all() -> dict[str, list[KnownPlan]]:
    found: dict[str, list[KnownPlan]] = {}
    for folder in (FOLDER, EXPLAINED):
        for path in sorted(folder.glob(f"*/{PLANS}")):
            found.setdefault(path.parent.name, []).append(KnownPlan.of(path))
    return found
