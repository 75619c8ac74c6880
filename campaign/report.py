"""This module makes the report of a campaign."""

from collections.abc import Iterator

from kvproof.campaign.figures import CampaignFigures

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
