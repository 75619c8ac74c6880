"""How many real defects the gate finds, of every third of a list that its authors had. Of changes
that they have not seen, it finds fewer.

`found.json` is written by `benchmarks/pull_requests/table.py`. It has the date, and for each part
of vLLM the number of defects that were found, and of those that were tried.
"""

from collections import Counter
from pathlib import Path

import msgspec

from kvproof.gate.source.changes import USED, Changes
from kvproof.model.files.reading import read_bytes
from kvproof.reports.gate_output import GateFound

FILE = Path(__file__).with_name("found.json")

FEW = 5
"""Fewer defects in a part of vLLM say nothing of it alone."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `found.json` has."""

    date: str
    parts: dict[str, tuple[int, int]]


def figure(changes: Changes) -> GateFound:
    """The figure of the part of vLLM in which most of the changed functions are, or of all parts
    where that has few defects."""
    measured = msgspec.json.decode(read_bytes(FILE, "table of what was found"), type=Measured)
    changed = Counter(each.part for each in changes.accounting if each.part != USED)
    [(part, _), *_] = changed.most_common(1) or [("", 0)]
    found, of = measured.parts.get(part, (0, 0))
    if of < FEW:
        part = "all parts"
        found, of = map(sum, zip(*measured.parts.values(), strict=True))
    return GateFound(part=part, found=found, of=of, date=measured.date)
