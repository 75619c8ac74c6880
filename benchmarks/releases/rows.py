"""The heat map: the results of the surveys of several releases for each invariant and each fault.

A cell of an invariant is VIOLATED if some run breaks it, and names what broke it (see
`causes`). A cell of a fault is VIOLATED if a run that was made to show this fault shows it,
and not if such a run breaks the same invariant for another reason. A cell is SAMPLED only if a run
that would show it was driven to its end and did not show it. Clusters that a release cannot drive
say nothing; if none of those that could show it was driven, the cell is UNKNOWN.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from benchmarks.releases.causes import Record, causes, of_invariant, without_cause
from benchmarks.releases.stories import STORIES
from kvproof.invariants.check import Check
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.registry import FAULTS
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import broken_by


@dataclass(frozen=True)
class SurveyedRelease:
    """A release and the records of its survey; `reason` says why it has none."""

    version: str
    records: tuple[Record, ...] = ()
    reason: str = ""


class HeatCell(NamedTuple):
    """A verdict, its reason, and the trace that shows it (a file of that release's traces).
    `causes` are the findings and faults that broke an invariant, the first to name in front."""

    verdict: Verdict
    why: str
    trace: str = ""
    causes: tuple[str, ...] = ()


class HeatMapRow(NamedTuple):
    """One invariant or fault over the releases, oldest first."""

    name: str
    about: str
    cells: tuple[HeatCell, ...]

    def history(self, versions: Sequence[str]) -> str:
        """The first bad release, and the first good release after it, in words."""
        verdicts = [cell.verdict for cell in self.cells]
        if Verdict.VIOLATED not in verdicts:
            return "no bad release found" if Verdict.SAMPLED in verdicts else "unknown"
        bad, good = first_bad_and_good(self, versions)
        before = verdicts[: versions.index(bad or "")]
        since = bad if Verdict.SAMPLED in before else f"{bad} or earlier"
        return f"bad from {since}, " + (f"good from {good}" if good else "not good since")

    def all_causes(self, versions: Sequence[str]) -> str:
        """What broke it, in words: each cause with the releases that it broke first, or beside
        another cause."""
        by_cause: dict[str, list[bool]] = {}
        for index, cell in enumerate(self.cells):
            for cause in cell.causes:
                by_cause.setdefault(cause, [False] * len(versions))[index] = True
        return "; ".join(f"{cause} ({_spans(on, versions)})" for cause, on in by_cause.items())


def _spans(on: Sequence[bool], versions: Sequence[str]) -> str:
    """The releases with True, neighbours together."""
    runs = groupby(zip(on, versions, strict=True), key=lambda pair: pair[0])
    return ", ".join(span([version for _, version in run]) for there, run in runs if there)


def span(versions: Sequence[str]) -> str:
    """Consecutive releases, in words."""
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def first_bad_and_good(row: HeatMapRow, versions: Sequence[str]) -> tuple[str | None, str | None]:
    """The first release that shows the violation, and the first good one after the last release
    that shows it."""
    verdicts = [cell.verdict for cell in row.cells]
    bad = [i for i, verdict in enumerate(verdicts) if verdict is Verdict.VIOLATED]
    if not bad:
        return None, None
    after = [i for i in range(bad[-1], len(verdicts)) if verdicts[i] is Verdict.SAMPLED]
    return versions[bad[0]], versions[after[0]] if after else None


def invariant_rows(releases: Sequence[SurveyedRelease]) -> list[HeatMapRow]:
    """A row for each invariant, but for ideals: a release alone says nothing of these."""
    return [
        HeatMapRow(i.id, i.origin, tuple(_invariant(release, i) for release in releases))
        for i in INVARIANTS.values()
        if not i.ideal
    ]


def fault_rows(releases: Sequence[SurveyedRelease], names: Iterable[str]) -> list[HeatMapRow]:
    """A row for each of these faults."""
    return [
        HeatMapRow(name, FAULTS[name].origin, tuple(_fault(release, name) for release in releases))
        for name in names
    ]


def story_rows(releases: Sequence[SurveyedRelease]) -> list[HeatMapRow]:
    """A row for each seed story: bad if one of its faults is bad, good if all are good."""
    rows = []
    for name, story in STORIES.items():
        cells = (
            _worst(_fault(release, fault, story.symptoms) for fault in story.faults)
            for release in releases
        )
        rows.append(HeatMapRow(name, ", ".join(story.faults), tuple(cells)))
    return rows


def _worst(cells: Iterable[HeatCell]) -> HeatCell:
    order = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.SAMPLED)
    return min(cells, key=lambda cell: order.index(cell.verdict))


def _invariant(release: SurveyedRelease, invariant: Check) -> HeatCell:
    found = of_invariant(release.records, invariant.id)
    if found:
        first = found[0]
        where = f"{first.record['kind']} {first.record['name']}"
        why = f"{first.label}: {where}: {_sentence(first.broken['reasons'])}"
        return HeatCell(Verdict.VIOLATED, why, first.broken["trace"], causes(found))
    judged = [r for r in release.records if r.get("invariant") == invariant.id]
    return _not_shown(release, judged)


def _fault(release: SurveyedRelease, name: str, symptoms: Sequence[str] = ()) -> HeatCell:
    """Whether a run that was made to show this fault shows it, or breaks one of the symptoms for no
    other known reason."""
    followed = [r for r in release.records if r.get("fault") == name]
    for record in followed:
        for broken in record.get("broken", ()):
            unexplained = not broken["by"] and not broken["after"]
            if broken["own"] or (broken["invariant"] in symptoms and unexplained):
                return _bad(broken)
    unclear = [
        (record, broken)
        for record in followed
        for broken in record.get("broken", ())
        if broken["invariant"] in broken_by(FAULTS[name]) and not broken["by"]
    ]
    if unclear and len({record["name"] for record, _ in unclear}) == len(_whole(followed)):
        sentence = _sentence(unclear[0][1]["reasons"])
        why = f"its run breaks {unclear[0][1]['invariant']} in another way: {sentence}"
        return HeatCell(Verdict.UNKNOWN, why)
    return _not_shown(release, followed)


def _bad(broken: Record) -> HeatCell:
    why = f"{broken['invariant']}: {_sentence(broken['reasons'])}"
    return HeatCell(Verdict.VIOLATED, why, broken["trace"])


def _whole(followed: Iterable[Record]) -> list[Record]:
    """The runs that were driven to their end, took most of their trace, and came to the place where
    the fault acts."""
    return [
        record
        for record in followed
        if "reason" not in record
        and not record["died"]
        and not record["departed"]
        and 2 * record["skipped"] < max(record["events"], 1)
    ]


def _not_shown(release: SurveyedRelease, followed: Sequence[Record]) -> HeatCell:
    """SAMPLED if one of the runs was driven to its end, otherwise UNKNOWN."""
    if release.reason:
        return HeatCell(Verdict.UNKNOWN, release.reason)
    undriven = sorted({r["cluster"] for r in followed if "reason" in r})
    if _whole(followed):
        sampled = [r for r in release.records if r["kind"] == "sampled" and "reason" not in r]
        whole = sum(r["runs"] - r["died"] for r in sampled)
        why = f"driven to its end and not shown, nor in {whole} random episodes"
        beside = f"; {', '.join(undriven)} cannot be driven" if undriven else ""
        return HeatCell(Verdict.SAMPLED, why + beside)
    if not followed:
        return HeatCell(Verdict.UNKNOWN, "no run that would show it was possible")
    return HeatCell(Verdict.UNKNOWN, _why_not(followed))


def _why_not(followed: Sequence[Record]) -> str:
    """Why none of these runs says anything: the death of an engine comes first."""
    driven = [record for record in followed if "reason" not in record]
    died = next((record["death"] for record in driven if record["died"]), "")
    if died:
        return f"an engine dies before the run could show it: {died}"
    if driven:
        last = driven[-1]
        if last["departed"]:
            return f"the run that would show it takes another course with {last['departed']}"
        missed = f"{last['skipped']} of {last['events']} events"
        return f"{missed} of the run that would show it are not possible"
    return str(followed[0]["reason"])


def _sentence(reasons: Sequence[str]) -> str:
    return ", yet ".join(("; ".join(reasons[:-1]) or "so", reasons[-1]))


def undriven(releases: Sequence[SurveyedRelease]) -> list[str]:
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


def unexplained(releases: Sequence[SurveyedRelease]) -> list[str]:
    """What breaks without a known cause, one line for each signature, with the releases."""
    lines: dict[str, list[str]] = {}
    for release in releases:
        for line in without_cause(release.records):
            lines.setdefault(line, []).append(release.version)
    return [f"{', '.join(dict.fromkeys(versions))}: {line}" for line, versions in lines.items()]


def as_data(rows: Iterable[HeatMapRow], versions: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as plain data, as reports/releases.json has them."""
    found = []
    for row in rows:
        bad, good = first_bad_and_good(row, versions)
        cells = {
            version: {
                "verdict": cell.verdict.value,
                "why": cell.why,
                "trace": cell.trace or None,
                "causes": list(cell.causes),
            }
            for version, cell in zip(versions, row.cells, strict=True)
        }
        about = {"name": row.name, "about": row.about, "first_bad": bad, "first_good": good}
        found.append({**about, "releases": cells})
    return found
