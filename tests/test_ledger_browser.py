"""The block ledger in a real browser: what is read, with the mouse and with the keyboard alone."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.traces.trace_reader import read
from kvproof.reports.ledger.of_trace import of_trace, page
from tests.planted import trace_of
from tests.test_ledger import FINDINGS, page_of

pytestmark = pytest.mark.nightly

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LABEL = "document.activeElement.getAttribute('aria-label')"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: install it to test the page in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page from a file. At the end there were no errors and no requests to a network."""
    errors: list[str] = []
    tabs = []

    def open_page(html: str, *, width: int = 1400, scheme: str = "light") -> Any:
        file = tmp_path / "t.html"
        file.write_text(html, encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: errors.append(message.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("request", lambda sent: sent.url == file.as_uri() or errors.append(sent.url))
        tab.goto(file.as_uri())
        tabs.append(tab)
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert not errors


def event(tab: Any) -> str:
    return str(tab.inner_text("#event"))


@pytest.mark.parametrize("width", [420, 900, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(shown: Open, width: int, scheme: str) -> None:
    tab = shown(page_of(trace_of("front_trim")), width=width, scheme=scheme)
    assert "BROKEN: paired_offsets_are_equal (severity: wrong tokens)" in tab.inner_text("#verdict")
    assert event(tab).startswith("Event 9 of 9: Schedule(D)")
    tab.keyboard.press("ArrowLeft")
    assert event(tab).startswith("Event 8 of 9: TransferDone(r0)")
    tab.keyboard.press("Home")
    assert event(tab) == "Before the first of 9 events"
    tab.click("#next")
    assert event(tab).startswith("Event 1 of 9: Submit(P, r0)")
    tab.keyboard.press("ArrowRight")
    assert event(tab).startswith("Event 2 of 9")
    tab.click("#events li:has-text('Admit(r1, 4, 1)')")
    assert event(tab).startswith("Event 9 of 9")
    assert tab.evaluate(OVERFLOW) <= 0


def test_a_trimming_error_is_seen(shown: Open) -> None:
    """The two blocks of the pair do not stand above the same token."""
    tab = shown(page_of(trace_of("front_trim")))
    assert tab.get_attribute("#transfers svg", "aria-label").endswith("begin at other tokens")
    left = [box["x"] for box in map(_box, tab.locator("#transfers svg .wrong rect").all())]
    assert len(left) == 2
    assert abs(left[0] - left[1]) > 40
    out = tab.locator("#transfers svg .out text:first-of-type").all_text_contents()
    assert out == ["2", "3"]  # of P; it should have been its block 3
    assert tab.locator("#transfers svg .arrow.wrong").count() == 1
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("ArrowLeft")  # the transfer of r0, which is right
    assert event(tab).startswith("Event 7 of 9")
    boxes = [box["x"] for box in map(_box, tab.locator("#transfers svg rect").all())]
    assert boxes[:2] == boxes[2:]
    assert tab.locator("#transfers svg .wrong").count() == 0


def _box(element: Any) -> Any:
    return element.bounding_box()


def test_numbers_are_explained_to_the_keyboard(shown: Open) -> None:
    tab = shown(page_of(trace_of("front_trim")))
    tab.focus("#all")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('#ledger') !== null")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    label = tab.evaluate(LABEL)
    assert label.startswith(("After event", "At the start"))
    assert tab.inner_text("#cell") == label
    assert event(tab).startswith("Event 9 of 9")


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in FINDINGS.glob("*/trace.jsonl"))
)
def test_every_finding_in_a_browser(shown: Open, name: str) -> None:
    """Each state of each trace is drawn without an error."""
    path = FINDINGS / name / "trace.jsonl"
    trace = read(path)
    tab = shown(page(of_trace(trace, path)), width=900)
    for _ in trace.events:
        tab.keyboard.press("ArrowLeft")
    assert event(tab) == f"Before the first of {len(trace.events)} events"
    assert tab.evaluate(OVERFLOW) <= 0
