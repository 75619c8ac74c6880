"""The block ledger of a trace and of records: what its page has, without a browser."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.finding import Finding
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
from kvproof.model.records.record import Happened, Record, write_in
from kvproof.model.records.record import read as read_record
from kvproof.model.traces.state_diff import Change, nested, patched
from kvproof.model.traces.trace import Trace, write
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.data import Ledger
from kvproof.reports.ledger.of_record import LATE, of_join, of_record
from kvproof.reports.ledger.of_trace import of_trace
from kvproof.reports.ledger.page import page
from tests.conftest import TESTDATA
from tests.reasons import said
from tests.test_rendering import trace_of

FINDINGS = Path(__file__).parent.parent / "findings"


def data_of(html: str) -> Any:
    return json.loads(re.search(r'type="application/json">(.*?)</script>', html, re.S)[1])  # type: ignore[index]


def page_of(trace: Trace) -> str:
    return page(of_trace(trace, Path("t.jsonl")))


def test_the_page_needs_no_network() -> None:
    html = page_of(trace_of("front_trim"))
    addresses = set(re.findall(r"https?://[^\"'\s)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|img|iframe)|\bsrc=|@import|url\(", html)


def test_a_reverse_transfer_goes_from_decode_to_prefill() -> None:
    trace = read(FINDINGS / "held_list_ends_with_prompt" / "trace.jsonl")
    sides = data_of(page_of(trace))["transfers"]
    assert sides["r0"]["sender"] == {"engine": "P", "request": "r0"}
    assert sides["r0 reverse"] == {
        "sender": {"engine": "D", "request": "r0"},
        "receiver": {"engine": "P", "request": "r1"},
    }


def test_who_else_takes_the_sent_blocks_matters() -> None:
    """P gives the blocks that it still sends to r1 in event 8, and that is what D receives."""
    trace = read(FINDINGS / "lease_ends_under_writer" / "trace.jsonl")
    assert trace.finding is not None
    assert trace.finding.about.request == "r0"
    steps = data_of(page_of(trace))["steps"]
    assert "Admit(r1" in steps[7]["text"]
    assert [n for n, step in enumerate(steps, 1) if not step["near"]] == [7, 9]


def test_no_text_of_a_trace_ends_the_program() -> None:
    trace = trace_of("front_trim")
    assert trace.finding is not None
    bad = Finding(trace.finding.invariant, said("</script><script>alert(1)</script>", "<b>"))
    html = page_of(replace(trace, finding=bad))
    assert html.count("</script>") == 2
    assert data_of(html)["findings"][0]["reasons"] == list(bad.sentences)


def test_the_command_writes_a_new_page(run: Any, refused: Any, tmp_path: Path) -> None:
    trace, html = tmp_path / "t.jsonl", tmp_path / "t.html"
    write(trace, trace_of("front_trim"))
    code, out, _ = run("report", str(trace), "--html", str(html))
    assert code == 0
    assert "BROKEN: paired_offsets_are_equal" in out
    assert out.endswith(f"\nThe page is in {html}.\n")
    assert len(data_of(html.read_text())["steps"]) == 9
    refused("report", str(trace), "--html", str(html))
    other = tmp_path / "other.html"
    _, out, err = run("report", str(trace), "--html", str(other), "--json")
    assert other.exists()
    assert "other.html" not in out + err


def test_the_page_has_what_the_trace_has() -> None:
    trace = trace_of("front_trim")
    data = data_of(page_of(trace))
    assert trace.changes is not None
    assert [step["changed"] for step in data["steps"]] == [
        json.loads(json.dumps(change.changed)) for change in trace.changes
    ]
    assert data["replay"] == "Replay it: kvproof replay t.jsonl --machine model"
    assert [n for n, step in enumerate(data["steps"], 1) if not step["near"]] == [1, 5]
    assert [step["found"] for step in data["steps"]] == [*[[]] * 8, ["paired_offsets_are_equal"]]
    assert "Fault front_trim: the lists are paired from the front" in data["title"]


# Records: what one does not say is not known


FILE = TESTDATA / "record.jsonl"
Replace = msgspec.structs.replace


def record_of(*events: RecordedEvent, dropped: int = 0, **header: Any) -> Record:
    """A record with these events, and without findings."""
    record = read_record(FILE)
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
    after = states(of_record(read_record(FILE)))
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
