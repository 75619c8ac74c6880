"""This module makes the output of a campaign: what it has seen, and an estimate of what it has not
seen yet, from its fresh units alone.

A fresh unit is a random sample of clusters and episodes, nearly independent of the others; a unit
that follows kept runs is none. For what plans show, each unit of plans is one. f1 and f2 are the
numbers of behaviours that exactly one and exactly two of m fresh units showed.

- Good and Turing: the next fresh unit shows about f1 / m behaviours that no earlier one showed.

- Chao (Chao2): at least (m - 1) / m * f1^2 / (2 f2) behaviours can be seen by fresh units and were
not seen.

Neither says anything about what no fresh unit can show: larger pools, features that kvproof does
not drive, or an order of events that the environment does not have.
"""

from kvproof.campaign.behaviours import PAIR, PLAN, STEP, kind
from kvproof.campaign.folder import CampaignState
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import FoundRun
from kvproof.invariants.check import FOUND
from kvproof.invariants.registry import severity_of
from kvproof.model.severity import Severity
from kvproof.reports.output.campaign import (
    CampaignFigures,
    CampaignFinding,
    EstimatedUnseen,
)
from kvproof.reports.output.verdict import FaultName, SignatureObject


def figures(state: CampaignState) -> CampaignFigures:
    """Return the figures of a campaign."""
    settings, progress = state.settings, state.progress
    return CampaignFigures(
        machine=settings.machine,
        vllm=settings.vllm,
        seed=settings.seed,
        faults=tuple(FaultName(name=name) for name in settings.faults),
        units=progress.units,
        fresh_units=progress.fresh_units,
        plan_units=progress.plan_units,
        runs=progress.runs,
        steps=progress.steps,
        corpus=len(progress.corpus),
        abstract_steps=progress.different.get(STEP, 0),
        pairs=progress.different.get(PAIR, 0),
        unseen={
            "abstract_steps": unseen(progress, STEP),
            "pairs": unseen(progress, PAIR),
            "plans": unseen(progress, PLAN),
        },
        findings=_findings(progress),
        known=dict(sorted(progress.met.items())),
        undriven=progress.undriven,
        errors=progress.errors,
    )


def severity(found: FoundRun) -> Severity | None:
    """Return the severity of a finding; None where it is not known."""
    check = FOUND.get(found.signature.check)
    return check.severity if check else severity_of(found.found.finding)


def _findings(progress: Progress) -> tuple[CampaignFinding, ...]:
    made = []
    for each, steps, trace in zip(
        progress.found, progress.found_at_step, progress.traces, strict=True
    ):
        grave = severity(each)
        made.append(
            CampaignFinding(
                signature=SignatureObject(**each.signature._asdict()),
                severity=grave.words if grave else None,
                reasons=each.found.finding.sentences,
                after_steps=steps,
                trace_length=each.length,
                trace=trace,
            )
        )
    return tuple(sorted(made, key=lambda each: (each.after_steps, each.signature.check)))


def unseen(progress: Progress, what: str) -> EstimatedUnseen:
    """Estimate how many behaviours of this kind were not seen."""
    counts = [seen.fresh for name, seen in progress.seen.items() if kind(name) == what]
    once, twice = counts.count(1), counts.count(2)
    units = max(progress.plan_units if what == PLAN else progress.fresh_units, 1)
    chao = once * once / (2 * twice) if twice else once * (once - 1) / 2
    left = (units - 1) / units * chao
    never = counts.count(0)
    return EstimatedUnseen(
        seen=len(counts) - never,
        by_followed_runs=never,
        in_next_unit=round(once / units, 3),
        unseen_at_least=round(left, 1),
    )
