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

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.campaign.behaviours import PAIR, PLAN, STEP, kind
from kvproof.campaign.folder import CampaignState
from kvproof.campaign.progress import Progress
from kvproof.invariants.registry import severity_of
from kvproof.model.finding import Signature
from kvproof.model.severity import Severity


class CampaignFinding(NamedTuple):
    """A finding of a campaign, with the number of steps after which it was found. `trace` is its
    file in the folder of the campaign."""

    signature: Signature
    severity: Severity | None
    reasons: tuple[str, ...]
    after_steps: int
    trace_length: int
    trace: str


class EstimatedUnseen(NamedTuple):
    """An estimate of what was not seen, from fresh units (see the page of campaigns). `seen` by
    fresh units and `by_followed_runs` alone; `in_next_unit` new ones in the next fresh unit, and
    `unseen_at_least` that are left."""

    seen: int
    by_followed_runs: int
    in_next_unit: float
    unseen_at_least: float


class CampaignFigures(NamedTuple):
    """What a campaign has seen. `plan_units` have plans of connectors and engine cores, and
    `unseen` has what plans showed as "plans". `known` counts the known findings of vLLM.
    `undriven` says which clusters and plans this vLLM cannot be driven with, and `errors` why units
    did not end, each with the first unit."""

    machine: str
    vllm: str | None
    seed: int
    faults: tuple[str, ...]
    units: int
    fresh_units: int
    plan_units: int
    runs: int
    steps: int
    corpus: int
    abstract_steps: int
    pairs: int
    unseen: dict[str, EstimatedUnseen]
    findings: tuple[CampaignFinding, ...]
    known: dict[str, int]
    undriven: dict[str, int]
    errors: dict[str, int]


def figures(state: CampaignState) -> CampaignFigures:
    """Return the figures of a campaign."""
    settings, progress = state.settings, state.progress
    return CampaignFigures(
        machine=settings.machine,
        vllm=settings.vllm,
        seed=settings.seed,
        faults=settings.faults,
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


def _findings(progress: Progress) -> tuple[CampaignFinding, ...]:
    made = (
        CampaignFinding(
            signature=each.signature,
            severity=severity_of(each.found.finding),
            reasons=each.found.finding.sentences,
            after_steps=steps,
            trace_length=each.length,
            trace=trace,
        )
        for each, steps, trace in zip(
            progress.found, progress.found_at_step, progress.traces, strict=True
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


Row = tuple[str, str]


def name(figures: CampaignFigures) -> str:
    """Say what a campaign is of, in a few words."""
    faults = f" with {', '.join(figures.faults)}" if figures.faults else ""
    return f"vLLM {figures.vllm}" if figures.machine == "live" else f"the model{faults}"


def _rows(figures: CampaignFigures) -> Iterator[Row]:
    yield "campaign of", name(figures)
    for label in ("units", "runs", "steps", "corpus"):
        yield label, f"{getattr(figures, label):,}"
    yield "abstract steps", f"{figures.abstract_steps:,}"
    yield "pairs of them", f"{figures.pairs:,}"
    yield "findings", str(len(figures.findings))
    labels = {"abstract steps": "abstract_steps", "pairs": "pairs"}
    if figures.plan_units:
        labels["facts of plans"] = "plans"
    for label, field in labels.items():
        found = figures.unseen[field]
        yield f"{label} that fresh units saw", f"{found.seen:,}"
        if field != "plans":  # no plan is followed
            yield f"{label} that only followed runs saw", f"{found.by_followed_runs:,}"
        yield f"new {label} to expect", expected(found.in_next_unit)
        yield f"{label}, unseen at least", f"{found.unseen_at_least:,.0f}"


def expected(in_next_unit: float) -> str:
    """Say how many new behaviours are expected of further fresh units."""
    if not in_next_unit:
        return "none"
    if in_next_unit >= 1:
        return f"{in_next_unit:,.0f} a unit"
    return f"1 in {1 / in_next_unit:,.0f} units"


def lines(figures: CampaignFigures) -> Iterator[str]:
    """Return the lines of the report."""
    for label, text in _rows(figures):
        yield f"{label + ':':<46}{text:>14}"
    for each in figures.findings:
        after = f"after {each.after_steps:,} steps: {each.reasons[-1]}"
        yield f"FOUND {each.signature.words}: {after}"
    for known, times in figures.known.items():
        yield f"known finding of this vLLM, met {times:,} times: {known}"
    for reason, unit in figures.errors.items():
        yield f"unit {unit} did not end: {reason}"
    for reason, unit in figures.undriven.items():
        yield f"not driven, first in unit {unit}: {reason}"
