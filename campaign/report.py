"""This module makes the report of a campaign. Two campaigns are shown side by side."""

from collections.abc import Iterator, Sequence

from kvproof.campaign.figures import CampaignFigures

Row = tuple[str, ...]


def name(figures: CampaignFigures) -> str:
    """Say what a campaign is of, in a few words."""
    faults = f" with {', '.join(figures.faults)}" if figures.faults else ""
    return f"vLLM {figures.vllm}" if figures.machine == "live" else f"the model{faults}"


def _totals(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    for label in ("units", "runs", "steps", "corpus"):
        yield label, *(f"{getattr(each, label):,}" for each in campaigns)
    for label, field in ("abstract steps", "abstract_steps"), ("pairs of them", "pairs"):
        yield label, *(f"{getattr(each, field):,}" for each in campaigns)
    yield "findings", *(str(len(each.findings)) for each in campaigns)


def _unseen(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    labels = {"abstract steps": "abstract_steps", "pairs": "pairs", "facts of plans": "plans"}
    if not any(each.plan_units for each in campaigns):
        del labels["facts of plans"]
    for label, field in labels.items():
        found = [each.unseen[field] for each in campaigns]
        yield f"{label} that fresh units saw", *(f"{each.seen:,}" for each in found)
        if field != "plans":  # no plan is followed
            alone = (f"{each.by_followed_runs:,}" for each in found)
            yield f"{label} that only followed runs saw", *alone
        yield f"new {label} to expect", *(expected(each.in_next_unit) for each in found)
        yield f"{label}, unseen at least", *(f"{each.unseen_at_least:,.0f}" for each in found)


def expected(in_next_unit: float) -> str:
    """Say how many new behaviours are expected of further fresh units."""
    if not in_next_unit:
        return "none"
    if in_next_unit >= 1:
        return f"{in_next_unit:,.0f} a unit"
    return f"1 in {1 / in_next_unit:,.0f} units"


def _findings(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    found: dict[str, list[str]] = {}
    for index, each in enumerate(campaigns):
        for one in each.findings:
            sign = one.signature
            label = f"{sign.check} after {sign.event}" + (f" ({sign.feature})" * bool(sign.feature))
            cells = found.setdefault(label, ["-"] * len(campaigns))
            cells[index] = f"after {one.after_steps:,} steps: {one.reasons[-1]}"
    for label, cells in sorted(found.items()):
        yield label, *cells


def lines(campaigns: Sequence[CampaignFigures]) -> Iterator[str]:
    """Return the lines of the report."""
    what = "campaigns" if len(campaigns) > 1 else "campaign"
    yield f"{what + ' of:':<46}" + "".join(f"{name(each):>14}" for each in campaigns)
    for rows in (_totals(campaigns), _unseen(campaigns)):
        for label, *cells in rows:
            yield f"{label + ':':<46}" + "".join(f"{cell:>14}" for cell in cells)
    for label, *cells in _findings(campaigns):
        yield f"FOUND {label}: {'; '.join(cells)}"
    for index, each in enumerate(campaigns):
        where = f" (campaign {index + 1})" if len(campaigns) > 1 else ""
        for known, times in each.known.items():
            yield f"known finding of this vLLM, met {times:,} times: {known}{where}"
        for reason, unit in each.errors.items():
            yield f"unit {unit} did not end: {reason}{where}"
        for reason, unit in each.undriven.items():
            yield f"not driven, first in unit {unit}: {reason}{where}"
