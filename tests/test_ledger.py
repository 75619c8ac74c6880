"""The block ledger: one page that needs nothing else, and works in a real browser."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.finding import Finding
from kvproof.model.traces.trace import write
from kvproof.reports.ledger.page import page
from kvproof.reports.output.search import PointOfNoReturn
from tests.test_rendering import trace_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
POINT = PointOfNoReturn(event=8, unknown="", irrelevant=(1,), length=9, sentence="")


def data_of(html: str) -> Any:
    return json.loads(re.search(r'type="application/json">(.*?)</script>', html, re.S)[1])  # type: ignore[index]


def test_the_page_needs_no_network() -> None:
    html = page(trace_of("front_trim"), Path("t.jsonl"), POINT)
    addresses = set(re.findall(r"https?://[^\"'\s)]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|img|iframe)|\bsrc=|@import|url\(", html)


def test_the_page_has_what_the_trace_has() -> None:
    trace = trace_of("front_trim")
    data = data_of(page(trace, Path("t.jsonl"), POINT))
    assert trace.changes is not None
    assert [step["changed"] for step in data["steps"]] == [
        json.loads(json.dumps(change.changed)) for change in trace.changes
    ]
    assert data["replay"] == "Replay it: kvproof replay t.jsonl --machine model"
    assert [n for n, step in enumerate(data["steps"], 1) if not step["near"]] == [1, 5]


def test_no_text_of_a_trace_ends_the_program() -> None:
    trace = trace_of("front_trim")
    assert trace.finding is not None
    bad = Finding(trace.finding.invariant, ("</script><script>alert(1)</script>", "<b>"))
    html = page(replace(trace, finding=bad))
    assert html.count("</script>") == 2
    assert data_of(html)["finding"]["reasons"] == list(bad.reasons)


def test_the_command_writes_a_new_page(run: Any, refused: Any, tmp_path: Path) -> None:
    trace, html = tmp_path / "t.jsonl", tmp_path / "t.html"
    write(trace, trace_of("front_trim"))
    code, out, _ = run("report", str(trace), "--html", str(html))
    assert code == 0
    assert "BROKEN: paired_offsets_are_equal" in out
    assert data_of(html.read_text())["point"] == 8
    refused("report", str(trace), "--html", str(html))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [420, 900, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "t.html"
    file.write_text(page(trace_of("front_trim"), Path("t.jsonl"), POINT), encoding="utf-8")
    shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors: list[str] = []
    shown.on("console", lambda message: errors.append(message.text))
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.goto(file.as_uri())
    assert "BROKEN: paired_offsets_are_equal: wrong tokens" in shown.inner_text("#verdict")
    assert shown.inner_text("#event").startswith("Event 9 of 9: Schedule(D)")
    assert shown.get_attribute("#transfers svg", "aria-label").endswith("begin at other tokens")
    shown.keyboard.press("ArrowLeft")
    assert shown.inner_text("#event").startswith("Event 8 of 9: TransferDone(r0)")
    shown.keyboard.press("Home")
    assert shown.inner_text("#event") == "Before the first of 9 events"
    shown.click("#next")
    assert shown.inner_text("#event").startswith("Event 1 of 9: Submit(P, r0)")
    shown.click("#events li:has-text('Admit(r1, 4, 1)')")
    assert shown.inner_text("#event").startswith("Event 9 of 9")
    shown.hover("#ledger td.held >> nth=0")
    assert "In vLLM: Scheduler." in shown.inner_text("#cell")
    shown.focus("#ledger td >> nth=0")
    shown.keyboard.press("ArrowDown")
    assert shown.evaluate("document.activeElement.getAttribute('aria-label')").startswith("after")
    before = shown.locator("#events li.fold").count()
    shown.check("#all")
    assert (before, shown.locator("#events li.fold").count()) == (2, 0)
    assert not errors
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert shown.evaluate(overflow) <= 0
    shown.close()


def test_two_thousand_events_in_a_browser(browser: Any, tmp_path: Path) -> None:
    """The page shows a part of the columns, so its size does not grow with the trace."""
    trace = trace_of("front_trim")
    assert trace.changes is not None
    many = 2000 // len(trace.events) + 1
    html = page(replace(trace, finding=None))
    data = data_of(html)
    data["steps"] *= many
    start, end = html.index('json">') + 6, html.index("</script>")
    file = tmp_path / "t.html"
    file.write_text(html[:start] + json.dumps(data) + html[end:], encoding="utf-8")
    shown = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.goto(file.as_uri())
    for key in ("ArrowLeft", "Home", "ArrowRight", "End"):
        shown.keyboard.press(key)
    assert shown.inner_text("#event").startswith(f"Event {len(data['steps'])} of")
    assert shown.locator("#ledger td").count() < 1000
    assert not errors
    shown.close()
