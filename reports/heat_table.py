"""The heat map as a table of text, which is also Markdown."""

from collections.abc import Iterator, Sequence

from kvproof.model.faults.registry import FAULTS
from kvproof.reports.heat_map import Release, Row, fault_rows, invariant_rows, story_rows, undriven
from kvproof.strategies.verdict import Verdict

MARKS = {Verdict.VIOLATED: "BAD", Verdict.SAMPLED: "ok", Verdict.UNKNOWN: "?"}
"""How a cell is shown. A question mark is never green."""

LEGEND = (
    "`BAD`: the invariant breaks (the fault shows). `ok`: every run that would show it was driven "
    "to its end and did not show it, and no random episode did. `?`: unknown; the JSON gives the "
    "reason. A fault is recognized by the invariants that it breaks; in another release a "
    "different mistake may break them on the same run."
)


def _table(title: str, first: str, rows: Sequence[Row], versions: Sequence[str]) -> Iterator[str]:
    wide = max(len(row.name) for row in rows) + 2
    columns = [max(len(version), 3) for version in versions]
    heads = [version.ljust(w) for version, w in zip(versions, columns, strict=True)]
    yield f"## {title}"
    yield ""
    yield f"| {first.ljust(wide)} | {' | '.join(heads)} | history |"
    yield f"|{'-' * (wide + 2)}|{'|'.join('-' * (w + 2) for w in columns)}|---|"
    for row in rows:
        name = f"`{row.name}`".ljust(wide)
        marks = [MARKS[c.verdict].ljust(w) for c, w in zip(row.cells, columns, strict=True)]
        yield f"| {name} | {' | '.join(marks)} | {row.history(versions)} |"
    yield ""


def lines(releases: Sequence[Release]) -> Iterator[str]:
    """The seed stories, the invariants and the faults over the releases, and what is unknown."""
    versions = [release.version for release in releases]
    yield "# Releases of vLLM"
    yield ""
    yield LEGEND
    yield ""
    yield from _table("Seed stories", "story", story_rows(releases), versions)
    yield from _table("Invariants", "invariant", invariant_rows(releases), versions)
    yield from _table("Faults", "fault", fault_rows(releases, FAULTS), versions)
    yield "## Not driven"
    yield ""
    yield from (f"- {line}" for line in undriven(releases) or ["nothing"])


def unknown(releases: Sequence[Release]) -> int:
    """The number of cells of stories and invariants that are UNKNOWN."""
    rows = [*story_rows(releases), *invariant_rows(releases)]
    return sum(cell.verdict is Verdict.UNKNOWN for row in rows for cell in row.cells)
