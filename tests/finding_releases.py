"""The releases on which a finding is there: what its reproducer did (`findings/releases.json`,
declared) and what the heat map shows (`reports/releases.json`, generated).

`python -m tests.finding_releases` rewrites the column of findings/README.md.
"""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.findings import FOLDER

README = FOLDER / "README.md"
MAP = Path(__file__).parent.parent / "reports" / "releases.json"
ROW = re.compile(r"^\| \[`(?P<name>\w+)`\]\([^|]*\|(?:[^|]*\|){3}(?P<fails>[^|]*)\|", re.MULTILINE)


class Tried(msgspec.Struct, forbid_unknown_fields=True):
    """The releases on which a reproducer failed for its stated reason, and on which it passed. On
    any other release it found other interfaces. `differs` says for a release why the heat map
    shows something else."""

    fails: list[str]
    passes: list[str]
    differs: dict[str, str] = {}


class Seen(NamedTuple):
    """The releases of the heat map, and the verdict of each finding's row by release."""

    releases: list[str]
    verdicts: dict[str, dict[str, str]]


def tried() -> dict[str, Tried]:
    """What the reproducers did, by finding."""
    text = (FOLDER / "releases.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Tried])


def seen() -> Seen:
    """What the heat map shows."""
    told = json.loads(MAP.read_text(encoding="utf-8"))
    rows = {row["name"]: row["releases"] for row in told["faults"]}
    return Seen(
        told["releases"],
        {name: {v: cell["verdict"] for v, cell in cells.items()} for name, cells in rows.items()},
    )


def fails_on(one: Tried, verdicts: dict[str, str], releases: Sequence[str]) -> str:
    """The releases with a finding, in words, and those that are known to be without it."""
    bad = [v in one.fails or verdicts.get(v) == "VIOLATED" for v in releases]
    good = [v in one.passes and verdicts.get(v) != "VIOLATED" for v in releases]
    without = _spans(good, releases)
    return _spans(bad, releases) + (f", not {without}" if without else "")


def _spans(on: Sequence[bool], releases: Sequence[str]) -> str:
    told = []
    for there, run in groupby(zip(on, releases, strict=True), key=lambda pair: pair[0]):
        minors = [version.rpartition(".")[0] for _, version in run]
        if there:
            told.append(minors[0] if len(minors) == 1 else f"{minors[0]} to {minors[-1]}")
    return ", ".join(told)


def disagreements(known: dict[str, Tried], shown: Seen) -> list[str]:
    """Where reproducer and heat map contradict each other, in words. What is declared as a
    difference and is none is one, too."""
    lines = []
    for name, one in known.items():
        verdicts = shown.verdicts.get(name, {})
        for release in (*one.fails, *one.passes):
            here = verdicts.get(release, "UNKNOWN")
            against = {"SAMPLED"} if release in one.fails else {"VIOLATED"}
            if (here in against) != (release in one.differs):
                what = "fails" if release in one.fails else "passes"
                lines.append(f"{name} on {release}: the reproducer {what}, the map says {here}")
    return lines


def rewritten(text: str) -> str:
    """The page with the column as it must be."""
    known, shown = tried(), seen()

    def row(found: re.Match[str]) -> str:
        name = found["name"]
        said = fails_on(known[name], shown.verdicts.get(name, {}), shown.releases)
        begin = found.start("fails") - found.start()
        return f"{found[0][:begin]} {said} |"

    return ROW.sub(row, text)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
