"""The heat map: the results of the surveys of several releases for each invariant and each fault.

A cell is VIOLATED if some run breaks the invariant (shows the fault). It is SAMPLED only if the
runs that would show it, one for each fault that breaks it, were driven to their end and did not
show it. If an engine died before that, or if the release cannot take the run, the cell is UNKNOWN.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.registry import FAULTS
from kvproof.reports.output.releases import Cell as OutputCell
from kvproof.reports.output.releases import HeatRow
from kvproof.reports.stories import STORIES
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import broken_by

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Release:
    """A release and the records of its survey; `reason` says why it has none."""

    version: str
    records: tuple[Record, ...] = ()
    reason: str = ""


class Cell(NamedTuple):
    """A verdict, its reason, and the trace that shows it (a file of that release's traces)."""

    verdict: Verdict
    why: str
    trace: str = ""


class Row(NamedTuple):
    """One invariant or fault over the releases, oldest first."""

    name: str
    about: str
    cells: tuple[Cell, ...]

    def history(self, versions: Sequence[str]) -> str:
        """The first bad release, and the first good release after it, in words."""
        verdicts = [cell.verdict for cell in self.cells]
        if Verdict.VIOLATED not in verdicts:
            return "no bad release found" if Verdict.SAMPLED in verdicts else "unknown"
        bad, good = first_bad_and_good(self, versions)
        before = verdicts[: versions.index(bad or "")]
        since = bad if Verdict.SAMPLED in before else f"{bad} or earlier"
        return f"bad from {since}, " + (f"good from {good}" if good else "not good since")


def first_bad_and_good(row: Row, versions: Sequence[str]) -> tuple[str | None, str | None]:
    """The first release that shows the violation, and the first good one after the last release
    that shows it."""
    verdicts = [cell.verdict for cell in row.cells]
    bad = [i for i, verdict in enumerate(verdicts) if verdict is Verdict.VIOLATED]
    if not bad:
        return None, None
    after = [i for i in range(bad[-1], len(verdicts)) if verdicts[i] is Verdict.SAMPLED]
    return versions[bad[0]], versions[after[0]] if after else None


def invariant_rows(releases: Sequence[Release]) -> list[Row]:
    """A row for each invariant."""
    return [
        Row(i.id, i.origin, tuple(_invariant(release, i) for release in releases))
        for i in INVARIANTS.values()
    ]


def fault_rows(releases: Sequence[Release], names: Iterable[str]) -> list[Row]:
    """A row for each of these faults."""
    return [
        Row(name, FAULTS[name].origin, tuple(_fault(release, name) for release in releases))
        for name in names
    ]


def story_rows(releases: Sequence[Release]) -> list[Row]:
    """A row for each seed story: bad if one of its faults is bad, good if all are good."""
    rows = []
    for name, story in STORIES.items():
        cells = (
            _worst(_fault(release, fault, story.symptoms) for fault in story.faults)
            for release in releases
        )
        rows.append(Row(name, ", ".join(story.faults), tuple(cells)))
    return rows


def _worst(cells: Iterable[Cell]) -> Cell:
    order = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.SAMPLED)
    return min(cells, key=lambda cell: order.index(cell.verdict))


def _invariant(release: Release, invariant: Invariant) -> Cell:
    seen = [
        (bool(broken["after"]), broken["events"], record, broken)
        for record in release.records
        for broken in record.get("broken", ())
        if broken["invariant"] == invariant.id
    ]
    if seen:
        after, _, record, broken = min(seen, key=lambda one: one[:2])
        first = f", after {', '.join(broken['after'])}" if after else ""
        why = f"{record['kind']} {record['name']}: {_sentence(broken['reasons'])}{first}"
        return Cell(Verdict.VIOLATED, why, broken["trace"])
    asked = [r for r in release.records if r.get("invariant") == invariant.id]
    if release.reason or not asked:
        return _not_shown(release, asked)
    faults = dict.fromkeys(record["fault"] for record in asked)
    return _worst(
        _not_shown(release, [r for r in asked if r["fault"] == fault]) for fault in faults
    )


def trace_row(releases: Sequence[Release], name: str) -> Row:
    """The row of one trace, from releases whose only record is the replay of this trace."""
    return Row(name, name, tuple(_trace(release) for release in releases))


def _trace(release: Release) -> Cell:
    for record in release.records:
        if record.get("shown"):
            return _bad(next(b for b in record["broken"] if b["invariant"] == record["invariant"]))
    return _not_shown(release, release.records)


def _fault(release: Release, name: str, symptoms: Sequence[str] = ()) -> Cell:
    """Whether a run of this fault breaks an invariant that the fault breaks, or one of the
    symptoms."""
    followed = _followed(release, name)
    signs = {*broken_by(FAULTS[name]), *symptoms}
    for record in followed:
        for broken in record.get("broken", ()):
            if broken["invariant"] in signs and _dies_of(name, broken):
                return _bad(broken)
    return _not_shown(release, followed)


def _dies_of(fault: str, broken: Mapping[str, Any]) -> bool:
    """Whether the engine died in a function in which this fault kills it; True if no engine
    died."""
    if broken["invariant"] != "engine_survives":
        return True
    return any(f" in {place}" in broken["reasons"][-1] for place in FAULTS[fault].dies_in)


def _bad(broken: Mapping[str, Any]) -> Cell:
    why = f"{broken['invariant']}: {_sentence(broken['reasons'])}"
    return Cell(Verdict.VIOLATED, why, broken["trace"])


def _followed(release: Release, fault: str) -> list[Record]:
    return [r for r in release.records if r["kind"] == "followed" and r.get("fault") == fault]


def _not_shown(release: Release, followed: Sequence[Record]) -> Cell:
    """SAMPLED if one of the runs was driven to its end, otherwise UNKNOWN."""
    if release.reason:
        return Cell(Verdict.UNKNOWN, release.reason)
    if any("reason" not in r and not r["died"] for r in followed):
        sampled = [r for r in release.records if r["kind"] == "sampled" and "reason" not in r]
        whole = sum(r["runs"] - r["died"] for r in sampled)
        return Cell(
            Verdict.SAMPLED, f"driven to its end and not shown, nor in {whole} random episodes"
        )
    if not followed:
        return Cell(Verdict.UNKNOWN, "no run that would show it was possible")
    record = followed[0]
    why = record.get("reason") or f"an engine dies before the run could show it: {record['death']}"
    return Cell(Verdict.UNKNOWN, why)


def _sentence(reasons: Sequence[str]) -> str:
    return ", yet ".join(("; ".join(reasons[:-1]) or "so", reasons[-1]))


def undriven(releases: Sequence[Release]) -> list[str]:
    """The clusters and features that could not be driven, one line for each, with the releases."""
    lines: dict[str, list[str]] = {}
    for release in releases:
        if release.reason:
            lines.setdefault(f"all: {release.reason}", []).append(release.version)
        for record in release.records:
            if record["kind"] == "sampled":
                for feature in record.get("without", ()):
                    lines.setdefault(f"sampled without {feature}", []).append(release.version)
            if "reason" in record:
                line = f"cluster {record['cluster']}: {record['reason']}"
                lines.setdefault(line, []).append(release.version)
    return [f"{', '.join(dict.fromkeys(versions))}: {line}" for line, versions in lines.items()]


def output_rows(rows: Iterable[Row], versions: Sequence[str]) -> tuple[HeatRow, ...]:
    """The rows for `--json`."""
    return tuple(
        HeatRow(
            name=row.name,
            about=row.about,
            first_bad=bad,
            first_good=good,
            releases={
                version: OutputCell(
                    verdict=cell.verdict.value, why=cell.why, trace=cell.trace or None
                )
                for version, cell in zip(versions, row.cells, strict=True)
            },
        )
        for row in rows
        for bad, good in [first_bad_and_good(row, versions)]
    )
