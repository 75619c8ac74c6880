"""The records of P and D of real NIXL connectors, joined: only what is known, and each mistake."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.invariants.of_bytes import TRANSFERRED
from kvproof.model.environment.arrivals import arrival
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.phases import Phase
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.lines import BlockSums
from kvproof.model.records.record import Record, write_in
from kvproof.strategies.joined import sent, took
from tests.mistakes import MISTAKES
from tests.recorded import Recorded
from tests.recorded import run as driven
from tests.sentences import two_sentences

pytestmark = pytest.mark.live


KNOWN = {"offered_tokens_are_loaded"}
"""vLLM 0.32.0 recomputes a prompt that D has in its cache, but for the state (see findings/)."""


def written(folder: Path, records: dict[str, Record]) -> tuple[str, str]:
    """The files of the records of P and D."""
    return str(write_in(folder, "P", records["P"])), str(write_in(folder, "D", records["D"]))


@pytest.mark.parametrize("name", ["pd", "pd-full", "pd-window", "pd-drafts", "pd-three"])
def test_clean_vllm_joins(as_json: Any, tmp_path: Path, name: str) -> None:
    files = written(tmp_path, driven(CLUSTERS[name], 3, 120).records)
    code, output = as_json("report", *files)
    assert code == 0
    assert {row["invariant"] for row in output["findings"]} <= KNOWN
    assert output["judged"]["paired_offsets_are_equal"]
    assert output["judged"]["nothing_reused_under_transfer"]


MISTAKEN = {
    "front_trim": ("pd-hitting", "paired_offsets_are_equal"),
    "decode_loads_whole_prompt": ("pd", "prefill_and_decode_agree"),
    "ssm_placeholders_not_trimmed": ("pd", "paired_lists_are_equal"),
}


@pytest.mark.parametrize("mistake", MISTAKEN)
def test_a_mistake_is_found(
    as_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    MISTAKES[mistake].patch(monkeypatch)
    found: set[str] = set()
    preset, finds = MISTAKEN[mistake]
    for seed in range(4):
        files = written(tmp_path, driven(CLUSTERS[preset], seed, 120).records)
        code, output = as_json("report", *files)
        found |= {row["invariant"] for row in output["findings"]}
        if finds in found:
            assert code == 1
            return
    pytest.fail(f"{mistake} is not found, but {found}")


def pair() -> Recorded:
    """P has finished r0, and D does not have it yet."""
    recorded = Recorded(CLUSTERS["pd-full"])
    recorded.take(Submit("P", "r0"))
    while recorded.machine.state.phase("r0") != Phase.OFFERED:
        recorded.take(Schedule("P"))
        recorded.take(Complete("P"))
    return recorded


def early() -> dict[str, Record]:
    """P frees the blocks before D asks for them, and long before its lease ends. The driver would
    not take this event of D, so vLLM is called by hand."""
    recorded = pair()
    cluster, nodes = recorded.machine.cluster, recorded.machine.nodes
    params = recorded.machine.transfers.params_of_decode("r0")
    nodes["P"].report(finished_sending={"r0"})
    nodes["D"].add(arrival(cluster, "r0", "D"), params, cluster.job("r0"))
    nodes["D"].scheduler.schedule()
    return recorded.records()


def test_blocks_that_are_freed_before_they_are_read(as_json: Any, tmp_path: Path) -> None:
    records = early()
    code, output = as_json("report", *written(tmp_path, records))
    assert (code, output["verdict"]) == (1, "VIOLATED")
    assert output["invariant"] == "nothing_reused_under_transfer"
    assert "P" in output["reasons"][0]
    # Where the lease was over, P may free them.
    header = records["P"].header
    connector = msgspec.structs.replace(header.connector, lease_s=0.0)
    over = records["P"]._replace(header=msgspec.structs.replace(header, connector=connector))
    code, output = as_json("report", *written(tmp_path / "over", records | {"P": over}))
    assert (code, output["findings"]) == (0, [])
    assert "nothing_reused_under_transfer" in output["not_judged"]
    # Where the clocks are of two machines, nobody knows.
    other = msgspec.structs.replace(records["D"].header, clock="another")
    files = written(tmp_path / "far", records | {"D": records["D"]._replace(header=other)})
    code, output = as_json("report", *files)
    assert (code, output["findings"]) == (0, [])
    assert "clocks" in output["not_judged"]["nothing_reused_under_transfer"]


def test_what_is_not_judged_is_unknown(as_json: Any, run: Any, tmp_path: Path) -> None:
    records = driven(CLUSTERS["pd-full"], 3, 120).records
    # Nothing was joined.
    empty = Recorded(CLUSTERS["pd-full"]).records()
    code, output = as_json("report", *written(tmp_path / "empty", empty))
    assert (code, output["verdict"], output["requests"]) == (3, "UNKNOWN", 0)
    code, out, _ = run("report", *written(tmp_path / "one", records | {"D": empty["D"]}))
    assert code == 3
    assert out.startswith("UNKNOWN: no request of D loads from a request of P")
    # Another vLLM has written the record.
    header = records["D"].header
    versions = msgspec.structs.replace(header.versions, vllm="0.1.0")
    old = records["D"]._replace(header=msgspec.structs.replace(header, versions=versions))
    code, output = as_json("report", *written(tmp_path / "old", records | {"D": old}))
    assert (code, output["verdict"]) == (3, "UNKNOWN")
    assert "vLLM 0.1.0 wrote the record" in output["reason"]
    assert output["judged"]["prefill_and_decode_agree"]


def test_wrong_files(refused: Any, tmp_path: Path) -> None:
    records = driven(CLUSTERS["pd-full"], 3, 120).records
    p, d = written(tmp_path, records)
    assert "Use the record of the prefill engine first" in refused("report", d, p)
    alone = str(write_in(tmp_path, "E", driven(CLUSTERS["full"], steps=5).records["E"]))
    assert "has no KV connector" in refused("report", alone, d)
    assert "has no KV connector" in refused("report", p, alone)
    assert "No such file" in refused("report", p, "nothing.jsonl")
    text = Path(d).read_text(encoding="utf-8")
    for number, end in enumerate((0, 20, len(text) // 2, len(text) - 1)):
        cut = tmp_path / f"cut{number}.jsonl"
        cut.write_text(text[:end], encoding="utf-8")
        assert two_sentences(refused("report", p, str(cut)))


# The bytes of a transfer


def with_sums(record: Record, sums: BlockSums) -> Record:
    """The record with sums after its last event."""
    *before, last = record.events
    event = msgspec.structs.replace(last.event, block_sums=(sums,))
    return record._replace(events=(*before, last._replace(event=event)))


def with_bytes(theirs: tuple[str, ...], ours: tuple[str, ...], **other: Any) -> dict[str, Record]:
    """Records with the sums of P's blocks and of D's, for the first request that D loads."""
    records = driven(CLUSTERS["pd-full"], 3, 120).records
    given = sent(records["P"])
    taken = next(each for each in took(records["D"]) if each.admitted and given)
    size = records["P"].header.engine.groups[0].block_size
    both = {"group": 0, "at": 0, "tokens": size * len(theirs), "form": "2 layers"}
    p = BlockSums(request=taken.remote.request, sent=True, sums=theirs, **both)
    d = BlockSums(request=taken.name, sent=False, sums=ours, **(both | other))
    return {"P": with_sums(records["P"], p), "D": with_sums(records["D"], d)}


# The sums of P's blocks, those of D's, what else the line of D says, and the code of the report.
BYTES: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], int]] = {
    "equal bytes": (("1a", "2b"), ("1a", "2b"), {}, 0),
    "other bytes": (("1a", "2b"), ("1a", "9b"), {}, 1),
    "another column": (("1a", "2b", "3c"), ("3c",), {"at": 1}, 1),
    "another layout": (("1a",), ("2b",), {"form": "3 layers"}, 0),
    "null block of D": (("1a",), ("",), {}, 0),
    "null block of P": (("",), ("1a",), {}, 0),
    "not sent": (("1a",), ("2b",), {"at": 1}, 0),
}
NOT_COMPARED = ("another layout", "null block of D", "null block of P", "not sent")


@pytest.mark.parametrize("name", BYTES)
def test_the_bytes_of_a_transfer(as_json: Any, tmp_path: Path, name: str) -> None:
    """Unequal ones are found, and what cannot be compared is not judged."""
    theirs, ours, other, expected = BYTES[name]
    code, output = as_json("report", *written(tmp_path, with_bytes(theirs, ours, **other)))
    found = [row for row in output["findings"] if row["invariant"] == TRANSFERRED]
    assert (code, len(found)) == (expected, expected)
    for row in found:
        assert row["severity"] == "wrong tokens"
        assert f"column {other.get('at', 0) + len(ours) - 1} of group 0" in row["reasons"][0]
    compared = name not in NOT_COMPARED
    assert (TRANSFERRED in output["not_judged"]) == (not compared)
    assert output["judged"].get(TRANSFERRED, 0) == len(ours) * compared
