"""The bytes of a transfer, of the records of P and D. The sums are written by hand: what is driven
here has no memory. `tests/engine` has those of real engines."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.invariants.of_bytes import TRANSFERRED
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.lines import BlockSums
from kvproof.model.records.record import Record, write_in
from kvproof.strategies.joined import sent, took
from tests.recorded import run as driven

pytestmark = pytest.mark.live


def with_sums(record: Record, sums: BlockSums) -> Record:
    """The record with sums after its last event."""
    *before, last = record.events
    event = msgspec.structs.replace(last.event, block_sums=(sums,))
    return record._replace(events=(*before, last._replace(event=event)))


def pair(theirs: tuple[str, ...], ours: tuple[str, ...], **other: Any) -> dict[str, Record]:
    """Records with the sums of P's blocks and of D's, for the first request that D loads."""
    records = driven(CLUSTERS["pd-full"], 3, 120).records
    given = sent(records["P"])
    taken = next(each for each in took(records["D"]) if each.admitted and given)
    size = records["P"].header.engine.groups[0].block_size
    both = {"group": 0, "at": 0, "tokens": size * len(theirs), "form": "2 layers"}
    p = BlockSums(request=taken.remote.request, sent=True, sums=theirs, **both)
    d = BlockSums(request=taken.name, sent=False, sums=ours, **(both | other))
    return {"P": with_sums(records["P"], p), "D": with_sums(records["D"], d)}


def joined(as_json: Any, folder: Path, records: dict[str, Record]) -> Any:
    files = [str(write_in(folder, name, records[name])) for name in ("P", "D")]
    return as_json("report", *files)


def test_equal_bytes_are_judged(as_json: Any, tmp_path: Path) -> None:
    _, output = joined(as_json, tmp_path, pair(("1a", "2b"), ("1a", "2b")))
    assert output["judged"][TRANSFERRED] == 2
    assert TRANSFERRED not in [row["invariant"] for row in output["findings"]]


@pytest.mark.parametrize(
    ("theirs", "ours", "at"),
    [(("1a", "2b"), ("1a", "9b"), 0), (("1a", "2b", "3c"), ("3c",), 1)],
    ids=["other bytes", "another column"],
)
def test_unequal_bytes_are_found(
    as_json: Any, tmp_path: Path, theirs: tuple[str, ...], ours: tuple[str, ...], at: int
) -> None:
    code, output = joined(as_json, tmp_path, pair(theirs, ours, at=at))
    [row] = [row for row in output["findings"] if row["invariant"] == TRANSFERRED]
    assert (code, row["severity"]) == (1, "wrong tokens")
    assert f"column {at + len(ours) - 1} of group 0" in row["reasons"][0]


@pytest.mark.parametrize(
    ("theirs", "ours", "other"),
    [
        (("1a",), ("2b",), {"form": "3 layers"}),
        (("1a",), ("",), {}),
        (("",), ("1a",), {}),
        (("1a",), ("2b",), {"at": 1}),
    ],
    ids=["another layout", "null block of D", "null block of P", "not sent"],
)
def test_what_cannot_be_compared_is_not_judged(
    as_json: Any, tmp_path: Path, theirs: tuple[str, ...], ours: tuple[str, ...], other: Any
) -> None:
    _, output = joined(as_json, tmp_path, pair(theirs, ours, **other))
    assert TRANSFERRED in output["not_judged"]
    assert TRANSFERRED not in output["judged"]
