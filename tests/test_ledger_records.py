"""The block ledger of records: what a record does not say is not known, and never empty."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.lines import (
    Admitted,
    Arrived,
    Load,
    Offer,
    Preempted,
    RecordedEvent,
    Remote,
    TableChange,
)
from kvproof.model.records.record import Happened, Record, read, write_in
from kvproof.model.traces.state_diff import Change, nested, patched
from kvproof.reports.ledger.data import Ledger
from kvproof.reports.ledger.of_record import LATE, of_join, of_record
from tests.conftest import TESTDATA
from tests.test_ledger import data_of

FILE = TESTDATA / "record.jsonl"
Replace = msgspec.structs.replace


def record_of(*events: RecordedEvent, dropped: int = 0, **header: Any) -> Record:
    """A record with these events, and without findings."""
    record = read(FILE)
    numbered = tuple(
        Happened(Replace(event, step=number)) for number, event in enumerate(events, dropped + 1)
    )
    header = {"dropped": dropped, **header}
    state = Replace(record.state, blocks=())
    return Record(Replace(record.header, **header), numbered, state)


def event(method: Any, at_s: float = 0.0, **fields: Any) -> RecordedEvent:
    return RecordedEvent(step=1, at_s=at_s, event=method, **fields)


def table(request: str, *blocks: int, at: int = 0) -> TableChange:
    return TableChange(request=request, group=0, at=at, blocks=blocks)


def states(ledger: Ledger) -> list[dict[str, Any]]:
    """The state after each step."""
    flat, found = ledger.initial, []
    for step in ledger.steps:
        assert step.changed is not None
        flat = patched(flat, Change(step.changed, step.removed))
        found.append(nested(flat))
    return found


def test_the_command_writes_the_page_of_a_record(run: Any, tmp_path: Path) -> None:
    html = tmp_path / "r.html"
    code, out, _ = run("report", str(FILE), "--html", str(html))
    assert code == 0
    assert "BROKEN: references_are_exact" in out
    data = data_of(html.read_text())
    assert data["source"] == "record"
    assert [found["name"] for found in data["findings"]] == [
        "references_are_exact",
        "no_block_free_and_held",
        "predicted_is_taken",
        "pool_adds_up",
    ]
    assert [found["step"] for found in data["findings"]] == [5, 5, 5, 6]
    assert data["further"] == 4
    assert data["replay"].startswith("Replay it: kvproof replay ")
    assert [step["label"] for step in data["steps"]] == ["1", "2", "3", "4", "5", "6", "end"]
    assert [step["near"] for step in data["steps"]] == [False, *[True] * 6]


def test_only_what_a_record_says_is_known() -> None:
    after = states(of_record(read(FILE)))
    request = after[4]["engines"]["E"]["requests"]["r1"]
    assert request["tables"] == [[1, 2, 3, 4]]
    assert (request["scheduled"], request["hit"], request["prompt_tokens"]) == (1, 6, 7)
    assert not {"computed", "prompt", "output", "num_cached_blocks"} & set(request)
    for state in after[:-1]:
        assert not {"blocks", "memory", "free", "cached", "ghost"} & set(state["engines"]["E"])
    assert after[5]["engines"]["E"].get("requests", {}) == {}
    end = after[-1]["engines"]["E"]["blocks"]
    assert {number: block["refs"] for number, block in end.items()} == {"1": -1, "2": -1, "3": -1}
    assert all("key" not in block and block["cached"] for block in end.values())


REMOTE = Remote(engine="p", request="r7", blocks=((5, 6),), tokens=4)
ARRIVED = Arrived(request="r0", prompt_tokens=5, output_tokens_max=2, remote=REMOTE)
DECODE = (
    event("add_request", 3.0, arrived=ARRIVED),
    event(
        "schedule",
        4.0,
        admitted=(Admitted(request="r0", hit=0, external=4),),
        tables=(table("r0", 1, 2),),
        loads=(Load(request="r0", blocks=((1, 2),)),),
    ),
    event("update_from_output", 5.0, received=("r0",)),
    event("schedule", 6.0, tokens={"r0": 1}, loaded=("r0",)),
)
PREFILL = (
    event("add_request", 1.0, arrived=Arrived(request="r7", prompt_tokens=4, output_tokens_max=1)),
    event("schedule", 1.5, tokens={"r7": 4}, tables=(table("r7", 5, 6),)),
    event(
        "update_from_output",
        2.0,
        ended={"r7": "length"},
        offers=(Offer(request="r7", blocks=((5, 6),), tokens=4),),
    ),
    event("update_from_output", 5.5, sent=("r7",), tables=(table("r7"),)),
)


def test_a_load_is_a_transfer_from_an_engine_that_is_not_there() -> None:
    ledger = of_record(record_of(*DECODE))
    after = states(ledger)
    [(name, load)] = after[1]["transfers"].items()
    assert load["remote"] == [[5, 6]]
    assert load["local"] == [[1, 2]]
    assert "pairs" not in load
    assert ledger.transfers[name].sender.engine == ""
    assert ledger.transfers[name].sender.request == "r7"
    assert not after[2]["transfers"]
    statuses = [state["engines"]["E"]["requests"]["r0"]["status"] for state in after]
    assert statuses == ["waiting", "loading", "loading", "running", "running"]


def test_two_records_are_put_in_the_order_of_their_times() -> None:
    pairs = {"r0": (((1, 2), (5, 6)),)}
    ledger = of_join(record_of(*PREFILL), record_of(*DECODE), (), pairs)
    labels = ["P1", "P2", "P3", "D1", "D2", "D3", "P4", "D4", "end"]
    assert [step.label for step in ledger.steps] == labels
    after = states(ledger)
    [(name, transfer)] = after[4]["transfers"].items()
    assert transfer["pairs"] == [[[1, 2], [5, 6]]]
    assert ledger.transfers[name].sender.engine == "P"
    assert ledger.transfers[name].receiver.engine == "D"
    assert set(after[2]["engines"]) == {"P", "D"}


@pytest.mark.live
def test_the_page_of_a_join(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real P and D with a mistake: the page has the finding where D asks for the blocks, and the
    pairs that vLLM's worker makes."""
    from tests.mistakes import MISTAKES
    from tests.recorded import Recorded

    MISTAKES["decode_loads_whole_prompt"].patch(monkeypatch)
    recorded = Recorded(CLUSTERS["pd"])
    recorded.until_over(Submit("P", "r0"), Schedule("P"), Complete("P"))
    records = recorded.records()
    files = [str(write_in(tmp_path, name, records[name])) for name in ("P", "D")]
    html = tmp_path / "j.html"
    code, out, _ = run("report", *files, "--html", str(html))
    assert code == 1
    data = data_of(html.read_text())
    [name] = [found["name"] for found in data["findings"]][:1]
    assert f"VIOLATED {name}" in out
    step = data["steps"][data["findings"][0]["step"] - 1]
    assert step["label"].startswith("D")
    assert "asks for" in step["text"]
    assert any(pointer.endswith("/pairs") for pointer in step["changed"])


def test_blocks_from_before_the_record_are_not_known() -> None:
    record = record_of(
        event("schedule", tokens={"r0": 1}, tables=(table("r0", 9, at=4),)),
        event("schedule", preempted=(Preempted(request="r0"),), tables=(table("r0"),)),
        event("schedule", tokens={"r0": 2}, tables=(table("r0", 3),)),
        dropped=70,
    )
    ledger = of_record(record)
    known = [state["engines"]["E"]["requests"]["r0"].get("tables") for state in states(ledger)]
    assert known == [None, [], [[3]], [[3]]]
    assert [step.label for step in ledger.steps] == ["71", "72", "73", "end"]
    assert LATE in ledger.notes
    assert LATE not in of_record(record_of()).notes
