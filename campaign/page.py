"""This module makes the report of a campaign: lines for a terminal, and a page for a browser. Two
campaigns are shown side by side."""

from collections.abc import Iterator, Sequence
from html import escape

from kvproof.reports.output.campaign import CampaignFigures

ASSUMPTIONS = (
    "The estimates take the fresh units (random clusters, random episodes) for independent samples "
    "of one distribution, and for facts of plans the units of plans; runs that change kept ones "
    "are not counted. To expect: Good and Turing's number of new ones in the next fresh unit. "
    "Unseen: Chao's lower bound (Chao2) of what fresh units can show and have not shown. They say "
    "nothing about what no fresh unit can show: longer runs, larger pools, features that are not "
    "driven."
)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } h2 { margin-top: 2rem }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .8rem; text-align: left }
th { color: #666; font-weight: normal }
td.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: 16rem; border: 1px solid #ddd } polyline { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } }
"""

COLOURS = ("#1f6feb", "#c2410c")
WIDTH, HEIGHT = 800, 240

Row = tuple[str, ...]


def name(figures: CampaignFigures) -> str:
    """Say what a campaign is of, in a few words."""
    faults = f" with {', '.join(each.name for each in figures.faults)}" if figures.faults else ""
    return f"vLLM {figures.vllm}" if figures.machine == "live" else f"the model{faults}"


def _totals(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    for label in ("units", "runs", "steps", "corpus"):
        yield label, *(f"{getattr(each, label):,}" for each in campaigns)
    for label, field in ("abstract steps", "abstract_steps"), ("pairs of them", "pairs"):
        yield label, *(f"{getattr(each.curve[-1], field):,}" for each in campaigns)
    yield "findings", *(str(len(each.findings)) for each in campaigns)


def _unseen(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    labels = {"abstract steps": "abstract_steps", "pairs": "pairs", "facts of plans": "plans"}
    if not any(each.plan_units for each in campaigns):
        del labels["facts of plans"]
    for label, field in labels.items():
        found = [each.unseen[field] for each in campaigns]
        yield f"{label} that fresh units saw", *(f"{each.seen:,}" for each in found)
        changed = "that only changed runs saw"
        if field != "plans":  # no plan is a changed one
            yield f"{label} {changed}", *(f"{each.by_changed_runs:,}" for each in found)
        yield f"new {label} to expect", *(expected(each.in_next_unit) for each in found)
        yield f"{label}, unseen at least", *(f"{each.unseen_at_least:,.0f}" for each in found)


def expected(in_next_unit: float) -> str:
    """Say how many new behaviours are expected of further fresh units."""
    if not in_next_unit:
        return "none"
    if in_next_unit >= 1:
        return f"{in_next_unit:,.0f} a unit"
    return f"1 in {1 / in_next_unit:,.0f} units"


def _features(campaigns: Sequence[CampaignFigures]) -> Iterator[Row]:
    for feature in sorted({feature for each in campaigns for feature in each.features}):
        cells = []
        for each in campaigns:
            seen = each.features.get(feature)
            cells += [f"{seen.abstract_steps:,}", f"{seen.pairs:,}"] if seen else ["-", "-"]
        yield feature, *cells


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
    """Return the lines of the report for a terminal."""
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


def page(campaigns: Sequence[CampaignFigures], *, refresh: bool = False) -> str:
    """Return the report as a page. With `refresh` a browser loads it again every ten seconds."""
    names = [name(each) for each in campaigns]
    both = [f"{each}, {what}" for each in names for what in ("abstract steps", "pairs")]
    again = '<meta http-equiv="refresh" content="10">' if refresh else ""
    known = (
        (f"{n} ({names[i]})", f"{t:,}") for i, c in enumerate(campaigns) for n, t in c.known.items()
    )
    errors = ((r, str(u)) for c in campaigns for r, u in (*c.errors.items(), *c.undriven.items()))
    parts = (
        _table("What was done", ["", *names], _totals(campaigns)),
        _table("Findings", ["signature", *names], _findings(campaigns)),
        "<h2>Curve of discovery</h2><p>Pairs of abstract steps (solid) and abstract steps (dashed),"
        f" by steps taken.</p>{_curve(campaigns)}",
        _table("What is unseen", ["", *names], _unseen(campaigns)),
        f"<p>{escape(ASSUMPTIONS)}</p>",
        _table("Seen by feature", ["feature of the cluster", *both], _features(campaigns)),
        _table("Known findings of this vLLM", ["name", "times"], known),
        _table("Not driven, or without an end", ["reason", "first unit"], errors),
    )
    title = f"Campaign on {' and '.join(names)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}<title>{escape(title)}'
        f"</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}"
        "</body></html>\n"
    )


def _table(title: str, head: Sequence[str], rows: Iterator[Row]) -> str:
    body = "".join(
        f"<tr><td>{escape(row[0])}</td>"
        + "".join(f'<td class="n">{escape(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    if not body:
        return f"<h2>{escape(title)}</h2><p>None.</p>"
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    return f"<h2>{escape(title)}</h2><table><tr>{cells}</tr>{body}</table>"


def _curve(campaigns: Sequence[CampaignFigures]) -> str:
    steps = max(each.curve[-1].steps for each in campaigns) or 1
    highest = {
        field: max(getattr(each.curve[-1], field) for each in campaigns) or 1
        for field in ("abstract_steps", "pairs")
    }
    shapes = []
    for colour, each in zip(COLOURS, campaigns, strict=False):
        for field, dash in ("pairs", ""), ("abstract_steps", ' stroke-dasharray="6 4"'):
            points = " ".join(
                f"{WIDTH * at.steps / steps:.1f},"
                f"{HEIGHT - HEIGHT * getattr(at, field) / highest[field]:.1f}"
                for at in each.curve
            )
            shapes.append(f'<polyline points="0,{HEIGHT} {points}" stroke="{colour}"{dash}/>')
    label = (
        f"{steps:,} steps; the top is {highest['pairs']:,} pairs, "
        f"{highest['abstract_steps']:,} abstract steps"
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{"".join(shapes)}</svg><p>{label}</p>'
    )
