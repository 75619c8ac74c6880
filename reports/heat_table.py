"""The heat map as a table of text, which is also Markdown."""

from collections.abc import Iterator, Sequence

from kvproof.model.faults.registry import FAULTS
from kvproof.reports.heat_map import (
    Release,
    Row,
    fault_rows,
    invariant_rows,
    story_rows,
    undriven,
    unexplained,
)
from kvproof.strategies.verdict import Verdict

MARKS = {Verdict.VIOLATED: "BAD", Verdict.SAMPLED: "ok", Verdict.UNKNOWN: "?"}
"""How a cell is shown. A question mark is never green."""

LEGEND = (
    "`BAD`: the invariant breaks, or a run that was made to show the fault shows it. `ok`: a run "
    "that would show it was driven to its end and did not show it, and no random episode did. `?`: "
    "unknown; the JSON gives the reason. A fault has its own signature: another mistake that "
    'breaks the same invariant on the same run does not make it bad. "Broken by" names the '
    'findings and faults behind an invariant; "after X" means that it breaks only after X. The '
    "deaths of engines that get reports no shipped worker makes are left out of `engine_survives`."
)


def _table(title: str, first: str, rows: Sequence[Row], versions: Sequence[str]) -> Iterator[str]:
    wide = max(len(row.name) for row in rows) + 2
    columns = [max(len(version), 3) for version in versions]
    heads = [version.ljust(w) for version, w in zip(versions, columns, strict=True)]
    yield f"## {title}"
    yield ""
    caused = any(cell.causes for row in rows for cell in row.cells)
    more = " broken by |" if caused else ""
    yield f"| {first.ljust(wide)} | {' | '.join(heads)} | history |{more}"
    yield f"|{'-' * (wide + 2)}|{'|'.join('-' * (w + 2) for w in columns)}|---|" + "---|" * caused
    for row in rows:
        name = f"`{row.name}`".ljust(wide)
        marks = [MARKS[c.verdict].ljust(w) for c, w in zip(row.cells, columns, strict=True)]
        behind = f" {row.all_causes(versions)} |" if caused else ""
        yield f"| {name} | {' | '.join(marks)} | {row.history(versions)} |{behind}"
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
    yield "## Without a known cause"
    yield ""
    yield from (f"- {line}" for line in unexplained(releases) or ["nothing"])
    yield ""
    yield "## Not driven"
    yield ""
    yield from (f"- {line}" for line in undriven(releases) or ["nothing"])


def unknown(releases: Sequence[Release]) -> int:
    """The number of cells of stories and invariants that are UNKNOWN."""
    rows = [*story_rows(releases), *invariant_rows(releases)]
    return sum(cell.verdict is Verdict.UNKNOWN for row in rows for cell in row.cells)
