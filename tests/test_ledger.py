"""The block ledger of a trace and of records: what its page has, without a browser."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvproof.model.finding import Finding
from kvproof.model.traces.trace import Trace, write
from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace, page
from tests.planted import trace_of
from tests.reasons import said

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
