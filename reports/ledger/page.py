"""The block ledger: one HTML file that needs no network and no server.

The page has the events with their changes of the state, as the file has them. Its program makes
the state after any event of them, and shows a lane for each request and each block.
"""

from pathlib import Path

from kvproof.model.files.reading import read_text
from kvproof.reports.ledger.data import Ledger, encoded

PARTS = {
    "style": ("ledger.css",),
    "program": ("states.js", "cells.js", "lanes.js", "transfers.js", "ledger.js"),
}
"""The files of the page, by the place in the template that they take."""

FOLDER = Path(__file__).parent


def page(ledger: Ledger) -> str:
    """Return the page as HTML."""
    html = _file("ledger.html")
    for place, names in PARTS.items():
        html = html.replace(f"/*{place}*/", "\n".join(map(_file, names)))
    return html.replace("/*data*/null", encoded(ledger))


def _file(name: str) -> str:
    return read_text(FOLDER / name, "part of the page", 1)
