"""The releases on which a finding is there: what its reproducer and its trace did on them
(`findings/releases.json`, declared).

`python -m tests.finding_releases` rewrites the column of findings/README.md.
"""

import re
from collections.abc import Sequence
from itertools import groupby

import msgspec

from kvproof.live.releases import NEWEST
from tests.findings import FOLDER

README = FOLDER / "README.md"
ROW = re.compile(r"^\| \[`(?P<name>\w+)`\]\([^|]*\|(?:[^|]*\|){3}(?P<fails>[^|]*)\|", re.MULTILINE)


class Tried(msgspec.Struct, forbid_unknown_fields=True):
    """The releases on which a reproducer failed for its stated reason, and on which it passed. On
    any other release it found other interfaces. On those that are `shown` the trace of the finding
    showed it (`kvproof replay TRACE --releases`). `differs` says why, where reproducer and trace
    answer differently."""

    fails: list[str]
    passes: list[str]
    shown: list[str] = []
    differs: dict[str, str] = {}

    @property
    def column(self) -> str:
        """The releases with the finding, in words, and those that are known to be without it."""
        without = _spans([v in self.passes and v not in self.shown for v in NEWEST], NEWEST)
        return _spans([v in (*self.fails, *self.shown) for v in NEWEST], NEWEST) + (
            f", not {without}" if without else ""
        )


def tried() -> dict[str, Tried]:
    """What reproducers and traces did, by finding."""
    text = (FOLDER / "releases.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Tried])


def _spans(on: Sequence[bool], releases: Sequence[str]) -> str:
    told = []
    for there, run in groupby(zip(on, releases, strict=True), key=lambda pair: pair[0]):
        minors = [version.rpartition(".")[0] for _, version in run]
        if there:
            told.append(minors[0] if len(minors) == 1 else f"{minors[0]} to {minors[-1]}")
    return ", ".join(told)


def rewritten(text: str) -> str:
    """The page with the column as it must be."""
    known = tried()

    def row(found: re.Match[str]) -> str:
        begin = found.start("fails") - found.start()
        return f"{found[0][:begin]} {known[found['name']].column} |"

    return ROW.sub(row, text)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
