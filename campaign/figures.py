"""What a campaign has seen, as an output."""

from collections import Counter

from kvproof.campaign.behaviours import PAIR, PLAN, STEP, kind
from kvproof.campaign.estimate import unseen
from kvproof.campaign.folder import CampaignState
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import FoundRun
from kvproof.invariants.check import FOUND
from kvproof.invariants.registry import severity_of
from kvproof.model.severity import Severity
from kvproof.reports.output.campaign import (
    CampaignFigures,
    CampaignFinding,
    SeenOfFeature,
)
from kvproof.reports.output.verdict import FaultName, SignatureObject


def figures(state: CampaignState) -> CampaignFigures:
    """The figures of a campaign."""
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
        features=_of_features(progress),
        unseen={
            "abstract_steps": unseen(progress, STEP),
            "pairs": unseen(progress, PAIR),
            "plans": unseen(progress, PLAN),
        },
        curve=(*progress.curve, progress.now),
        findings=_findings(progress),
        known=dict(sorted(progress.met.items())),
        undriven=progress.undriven,
        errors=progress.errors,
    )


def severity(found: FoundRun) -> Severity | None:
    """What a user would notice of a finding; None where that is not known."""
    check = FOUND.get(found.signature.check)
    return check.severity if check else severity_of(found.found.finding)


def _of_features(progress: Progress) -> dict[str, SeenOfFeature]:
    counts = {what: Counter[str]() for what in (STEP, PAIR)}
    for name, seen in progress.seen.items():
        if kind(name) in counts:
            counts[kind(name)].update(seen.features)
    return {
        feature: SeenOfFeature(abstract_steps=counts[STEP][feature], pairs=counts[PAIR][feature])
        for feature in sorted(counts[STEP])
    }


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
