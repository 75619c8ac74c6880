"""The heat map for a narrow terminal: a block for each row, in place of a column for each
release."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from kvproof.model.faults.registry import FAULTS
from kvproof.reports.heat_map import (
    HeatMapRow,
    SurveyedRelease,
    fault_rows,
    invariant_rows,
    span,
    story_rows,
    undriven,
    unexplained,
)
from kvproof.reports.heat_table import LEGEND, MARKS


def lines(releases: Sequence[SurveyedRelease]) -> Iterator[str]:
    """The same rows as in the table: each with its history, and the marks of its releases."""
    versions = [release.version for release in releases]
    yield LEGEND.replace("`", "")
    for title, rows in (
        ("Seed stories", story_rows(releases)),
        ("Invariants", invariant_rows(releases)),
        ("Faults", fault_rows(releases, FAULTS)),
    ):
        yield ""
        yield title
        for row in rows:
            yield f"  {row.name}: {row.history(versions)}"
            yield f"      {marks(row, versions)}"
            if row.all_causes(versions):
                yield f"      broken by {row.all_causes(versions)}"
    yield ""
    yield "Without a known cause"
    yield from (f"  {line}" for line in unexplained(releases) or ["nothing"])
    yield ""
    yield "Not driven"
    yield from (f"  {line}" for line in undriven(releases) or ["nothing"])


def marks(row: HeatMapRow, versions: Sequence[str]) -> str:
    """The marks of a row: neighbours with the same mark are named together."""
    cells = zip(versions, (MARKS[cell.verdict] for cell in row.cells), strict=True)
    runs = [(mark, [v for v, _ in run]) for mark, run in groupby(cells, key=lambda cell: cell[1])]
    return ", ".join(f"{mark} {span(run)}" for mark, run in runs)
