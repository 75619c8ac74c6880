"""The heat map as a table of text, which is also Markdown."""

from collections.abc import Iterator, Sequence

from benchmarks.releases.rows import (
    HeatMapRow,
    SurveyedRelease,
    fault_rows,
    invariant_rows,
    story_rows,
    undriven,
    unexplained,
)
from kvproof.model.faults.registry import FAULTS
from kvproof.strategies.verdict import Verdict

MARKS = {Verdict.VIOLATED: "BAD", Verdict.SAMPLED: "ok", Verdict.UNKNOWN: "?"}
"""How a cell is shown. A question mark is never green."""

LEGEND = (
    "`BAD`: the invariant breaks, or a run that was made to show the fault shows it. `ok`: a run "
    "that would show it was driven to its end and did not show it, and no random episode did. `?`: "
    "unknown; the JSON gives the reason. A fault has its own signature: another mistake that "
    "breaks the same invariant on the same run does not make it bad. What broke an invariant is a "
    'finding or a fault; "after X" means that it breaks only after X. The deaths of engines that '
    "get reports no shipped worker makes are left out of `engine_survives`."
)


def _table(
    title: str, first: str, rows: Sequence[HeatMapRow], versions: Sequence[str]
) -> Iterator[str]:
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


def _causes(rows: Sequence[HeatMapRow], versions: Sequence[str]) -> Iterator[str]:
    """What broke each invariant, with the releases."""
    yield "What broke them:"
    yield ""
    for row in rows:
        if row.all_causes(versions):
            yield f"- `{row.name}`: {row.all_causes(versions)}"
    yield ""


def lines(releases: Sequence[SurveyedRelease]) -> Iterator[str]:
    """The seed stories, the invariants and the faults over the releases, and what is unknown."""
    versions = [release.version for release in releases]
    yield "# Releases of vLLM"
    yield ""
    yield LEGEND
    yield ""
    yield from _table("Seed stories", "story", story_rows(releases), versions)
    rows = invariant_rows(releases)
    yield from _table("Invariants", "invariant", rows, versions)
    yield from _causes(rows, versions)
    yield from _table("Faults", "fault", fault_rows(releases, FAULTS), versions)
    yield "## Without a known cause"
    yield ""
    yield from (f"- {line}" for line in unexplained(releases) or ["nothing"])
    yield ""
    yield "## Not driven"
    yield ""
    yield from (f"- {line}" for line in undriven(releases) or ["nothing"])


def unknown(releases: Sequence[SurveyedRelease]) -> int:
    """The number of cells of stories and invariants that are UNKNOWN."""
    rows = [*story_rows(releases), *invariant_rows(releases)]
    return sum(cell.verdict is Verdict.UNKNOWN for row in rows for cell in row.cells)
